"""Calls on 16 floats: rows 1 to 3 of the table."""

import torch
from torch import Tensor

from benchmarks.measure import Row, compare
from benchmarks.pytorch import peers
from benchmarks.pytorch.muladd import muladd

SIZE = 16


def rows() -> list[Row]:
    """A call without gradients, and forward and backward, against the peers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        by_hand, custom = peers.handwritten(), peers.custom_op()
        _check_same(by_hand, custom)
        return [
            Row("a call, 16 floats", "C++ by hand", compare(_forward(muladd), _forward(by_hand)), 1.0),
            Row("forward and backward", "C++ by hand", compare(_training(muladd), _training(by_hand)), 0.9),
            Row("forward and backward", "torch.library.custom_op", compare(_training(muladd), _training(custom)), 0.4),
        ]
    finally:
        torch.set_num_threads(threads)


def _forward(op: peers.Operator):
    x, w = torch.randn(SIZE), torch.randn(SIZE)

    def run(count: int) -> None:
        for _ in range(count):
            op(x, w, alpha=2.0)

    return run


def _training(op: peers.Operator):
    x, w = torch.randn(SIZE, requires_grad=True), torch.randn(SIZE, requires_grad=True)
    gradient = torch.ones(SIZE)

    def run(count: int) -> None:
        for _ in range(count):
            op(x, w, alpha=2.0).backward(gradient)

    return run


def _check_same(*others: peers.Operator) -> None:
    """All compute the same numbers, or the comparison means nothing."""
    x, w = torch.randn(SIZE, requires_grad=True), torch.randn(SIZE, requires_grad=True)
    expected = _numbers(muladd, x, w)
    for other in others:
        torch.testing.assert_close(_numbers(other, x, w), expected)


def _numbers(op: peers.Operator, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    out = op(x, w, alpha=2.0)
    return out, *torch.autograd.grad(out.sum(), (x, w))
