"""Operators with CUDA kernels: machines with a GPU run them in tests, others compile and emulate them."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

import oneop

CUDA = ["gallery.cu"]
EVERY_FLOAT = ["float16", "bfloat16", "float32", "float64"]


@oneop.op("gpu::axpby", kernels=["gallery.cpp", *CUDA], dtypes=EVERY_FLOAT)
def axpby(
    x: Float[Tensor, "*batch n"], y: Float[Tensor, "*batch n"], *, alpha: float = 1.0, beta: float = 1.0
) -> Float[Tensor, "*batch n"]:
    """alpha * x + beta * y, element by element."""
    return alpha * x + beta * y


class Extremes(NamedTuple):
    total: Float[Tensor, "n"]
    largest: Float[Tensor, "n"]
    where: Int64[Tensor, "n"]


class Found(NamedTuple):
    values: Float[Tensor, "?k"]
    places: Int64[Tensor, "?k"]


@oneop.op("gpu::extremes", kernels=CUDA, dtypes=EVERY_FLOAT)
def extremes(x: Float[Tensor, "n m"]) -> Extremes:
    """The sum of each row, and its largest element and where it stands: a reduction in shared memory."""
    largest, where = x.max(dim=1)
    return Extremes(x.double().sum(1).to(x.dtype), largest, where)


@oneop.op("gpu::positive", kernels=CUDA)
def positive(x: Float[Tensor, "n"]) -> Found:
    """The positive elements, in order, and where they stand: sizes that only the kernel knows."""
    (places,) = torch.where(x > 0)
    return Found(x[places], places)


@oneop.op("gpu::blend", kernels=CUDA)
def blend(
    x: Float[Tensor, "n"], weight: Float[Tensor, "n"] | None, others: list[Float[Tensor, "n"]]
) -> Float[Tensor, "n"]:
    """x and the others, added up, times a weight where there is one."""
    total = x
    for other in others:
        total = total + other
    return total if weight is None else total * weight


@oneop.op("gpu::polynomial", kernels=CUDA)
def polynomial(
    x: Float[Tensor, "*batch n"],
    *,
    coefficients: list[float] = [1.0, 2.0],  # noqa: B006
    mode: Literal["plain", "even"] = "plain",
    offset: float | None = None,
    clip: bool = False,
) -> Float[Tensor, "*batch n"]:
    """A polynomial of x, or of x squared; attributes of every kind."""
    at = x * x if mode == "even" else x
    result = torch.zeros_like(x)
    for coefficient in reversed(coefficients):
        result = result * at + coefficient
    if offset is not None:
        result = result + offset
    return result.clamp(min=0) if clip else result


@oneop.op("gpu::gather_columns", kernels=CUDA, layout="strided")
def gather_columns(x: Float[Tensor, "n m"], index: Int64[Tensor, "k"]) -> Float[Tensor, "n k"]:
    """Columns of x, as x lies in memory."""
    return x[:, index]


@oneop.op("gpu::tally", kernels=CUDA)
def tally(x: Int[Tensor, "n"], keep: Bool[Tensor, "n"], *, bins: int) -> Int64[Tensor, "bins"]:
    """How often each of 0, ..., bins - 1 stands where `keep` says so: integers, truth values and atomics."""
    found = x[keep & (x >= 0) & (x < bins)].long()
    return torch.zeros(bins, dtype=torch.int64, device=x.device).index_add(0, found, torch.ones_like(found))


@oneop.op("gpu::spread", kernels=CUDA)
def spread(x: Float[Tensor, "n m"]) -> Float[Tensor, "n"]:
    """The variance of each row, in two passes with scratch memory between them."""
    return ((x - x.mean(1, keepdim=True)) ** 2).mean(1)


@spread.gradient(kernels=CUDA)
def spread_grad(grad, x):
    return (2 / x.shape[1]) * (x - x.mean(1, keepdim=True)) * grad[:, None]


@oneop.op("gpu::whereabouts", kernels=CUDA, dtypes=["float32"])
def whereabouts(x: Float[Tensor, "n"]) -> Int64[Tensor, "2"]:
    """The stream and the device that its kernel runs on; -1 from the reference."""
    return torch.full((2,), -1, dtype=torch.int64, device=x.device)


@oneop.op("gpu::failing", kernels=CUDA, dtypes=["float32"])
def failing(
    x: Float[Tensor, "n"], *, how: Literal["launch", "check", "fail", "memory", "not at all"]
) -> Float[Tensor, "n"]:
    """Fails in the way that is asked for."""
    return x.clone()


@oneop.op("gpu::slow", kernels=CUDA, dtypes=["float32"])
def slow(x: Float[Tensor, "n"], *, rounds: int) -> Float[Tensor, "n"]:
    """x + rounds, by so many steps that streams can be seen to be kept in order."""
    return x + rounds


def every_operator() -> list[oneop.Operator]:
    """All of them, gradients too."""
    return oneop.registry.defined_in(__file__)
