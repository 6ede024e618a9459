"""The tolerance: what rounding may do passes, and what it may not does not."""

import pytest
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

import oneop
from oneop.check import oracle, transforms
from oneop.check.drawing import sample
from oneop.check.examples import case_of
from oneop.check.subject import subject_of


@oneop.op("oracle::affine")
def affine(x: Float[Tensor, "n k"], w: Float[Tensor, "m k"], *, beta: float = 0.1) -> Float[Tensor, "n m"]:
    return x @ w.T + beta


@oneop.op("oracle::spread")
def spread(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Cancels: the mean is taken away."""
    return (x + 1000.0 - (x + 1000.0).mean()) ** 2


@oneop.op("oracle::places")
def places(x: Float32[Tensor, "n"], *, scale: float = 0.1) -> Int64[Tensor, "n"]:
    return torch.floor(x * scale).long()


@oneop.op("oracle::relu")
def relu(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return torch.relu(x)


def wrong(op: oneop.Operator, got: list[Tensor], *inputs: Tensor, **attributes: float) -> str | None:
    subject = subject_of(op)
    given = op._arguments(list(inputs), dict(attributes))
    case = case_of(op, subject.constraints, *given, where="test", origin="drawn")
    expected = oracle.expect(subject, transforms.values, case)
    found = oracle.mismatch([("out", tensor) for tensor in got], expected)
    return None if found is None else found.summary


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_the_reference_in_its_own_dtype_is_right(dtype: torch.dtype) -> None:
    x, w = randn(5, 4, dtype=dtype), randn(3, 4, dtype=dtype)
    assert wrong(affine, [affine.reference(x, w, beta=0.1)], x, w) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 4, 17])
def test_a_thousandth_of_beta_is_seen(dtype: torch.dtype, k: int) -> None:
    x, w = randn(5, k, dtype=dtype), randn(3, k, dtype=dtype)
    assert wrong(affine, [affine.reference(x, w, beta=0.1001)], x, w) is not None


def test_a_loop_may_add_in_any_order() -> None:
    x, w = randn(3, 1000), randn(2, 1000)
    total = torch.zeros(3, 2)
    for step in range(1000):
        total += x[:, step : step + 1] * w[:, step]
    assert wrong(affine, [total + 0.1], x, w) is None


def test_float32_inside_float64_is_seen() -> None:
    x, w = randn(5, 4, dtype=torch.float64), randn(3, 4, dtype=torch.float64)
    got = affine.reference(x.float(), w.float(), beta=0.1).double()
    assert wrong(affine, [got], x, w) is not None


def test_what_cancels_on_the_way_may_lose_digits() -> None:
    x = randn(64)
    high = x.double() + 1000.0
    assert wrong(spread, [((high - high.mean()) ** 2).float()], x) is None
    assert wrong(spread, [spread.reference(x.flip(0)).flip(0)], x) is None
    assert wrong(spread, [1.5 * spread.reference(x)], x) is not None


def test_integers_are_exact_but_where_rounding_decides() -> None:
    x = torch.tensor([9.99, 25.0, 30.0])  # 30 * 0.1 is 3 or just above, as it is rounded
    right = places.reference(x, scale=0.1)
    assert wrong(places, [right], x) is None
    assert wrong(places, [right + torch.tensor([0, 1, 0])], x) == "out at [1] is 3 instead of 2"


def test_nan_and_infinity() -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0])
    assert wrong(relu, [torch.tensor([torch.nan, torch.inf, 0.0, 1.0])], x) is None
    assert wrong(relu, [torch.tensor([0.0, torch.inf, 0.0, 1.0])], x) == "out at [0] is 0 instead of nan"
    assert wrong(relu, [torch.tensor([torch.nan, 3e38, 0.0, 1.0])], x) == "out at [1] is 3.00000001e+38 instead of inf"
    assert wrong(relu, [torch.tensor([torch.nan, torch.inf, torch.nan, 1.0])], x) == "out at [2] is nan instead of 0"


def test_shapes_and_dtypes() -> None:
    x = randn(4)
    assert wrong(relu, [torch.relu(x)[None]], x) == "out has shape (1, 4) instead of (4,)"
    assert wrong(relu, [torch.relu(x).double()], x) == "out is float64 instead of float32"
    assert wrong(relu, [torch.relu(x)] * 2, x) == "2 tensors came back where 1 are due"


def test_noise_reaches_every_operation() -> None:
    x = randn(8, dtype=torch.float64)
    with oracle.Noise(1e-3, 0):
        moved = (x + 1000.0) - 1000.0
    assert float((moved - x).abs().max()) > 0.01


def test_an_easier_tolerance_is_worked_out_only_where_it_matters() -> None:
    subject = subject_of(affine)
    case = sample(subject.space.cases(), 3, 0)[-1]
    expected = oracle.expect(subject, transforms.values, case)
    oracle.mismatch(transforms.values(subject, subject.reference, case), expected)
    assert not expected.is_refined
    oracle.mismatch([("out", case.tensors[0].new_zeros(expected.tensors[0].own.shape) + 99)], expected)
    assert expected.is_refined
