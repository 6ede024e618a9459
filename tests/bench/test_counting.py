"""Floating operations and bytes: what is counted by hand is what is counted, and the rest is named."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from oneop.bench.counting import bytes_of, count

N, K, M = 3, 5, 7


@pytest.fixture
def x() -> Tensor:
    return torch.randn(N, K)


def test_a_product_is_two_operations_for_each_term(x: Tensor) -> None:
    assert count(lambda: x @ torch.ones(K, M)) == (2 * N * K * M, ())


def test_elementwise_arithmetic_and_sums(x: Tensor) -> None:
    assert count(lambda: (x + x) * 2.0 - x / 3.0) == (4 * N * K, ())
    assert count(lambda: torch.add(x, x, alpha=2.0)) == (2 * N * K, ())
    assert count(lambda: x.sum(0)) == (N * K, ())
    assert count(lambda: x.abs().mean()) == (2 * N * K, ())
    assert count(lambda: torch.mv(x, torch.ones(K))) == (2 * N * K, ())


def test_small_whole_powers_are_products_and_others_are_not(x: Tensor) -> None:
    assert count(lambda: x**2 + x**3) == (N * K * (1 + 2 + 1), ())
    assert count(lambda: x.abs() ** 0.3) == (N * K, ("aten.pow",))


def test_what_moves_or_compares_is_no_operation(x: Tensor) -> None:
    moves = lambda: torch.cat([x.T.reshape(K, N), torch.where(x > 0, x, torch.zeros_like(x)).T], 1)[:, 1:].clone()  # noqa: E731
    assert count(moves) == (0, ())


def test_integers_are_no_floating_operations() -> None:
    assert count(lambda: torch.arange(5) * 2 + 1) == (0, ())


def test_what_has_no_agreed_count_is_named(x: Tensor) -> None:
    assert count(lambda: torch.tanh(x @ torch.ones(K, M))) == (2 * N * K * M, ("aten.tanh",))
    assert count(lambda: functional.softmax(x, -1)) == (None, ("aten._softmax",))
    assert count(lambda: torch.erfinv(x).exp()) == (None, ("aten.erfinv", "aten.exp"))


def test_a_backward_pass(x: Tensor) -> None:
    weight = torch.randn(K, M, requires_grad=True)

    def run() -> None:
        torch.autograd.grad((x @ weight).sum(), weight)

    # The product, its sum, and one product for the gradient of the weight.
    assert count(run) == (2 * N * K * M + N * M + 2 * K * N * M, ())


def test_bytes() -> None:
    assert bytes_of([torch.zeros(3, 5), torch.zeros(2, dtype=torch.int64), torch.zeros(4, dtype=torch.bfloat16)]) == 84
