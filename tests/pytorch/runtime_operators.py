"""Operators of different shapes, with kernels in sources/runtime.cpp: what the tests of the runtime call."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, Int64, UInt8
from torch import Tensor

import oneop

SOURCES = ["sources/runtime.cpp"]


@oneop.op("runtime::muladd", kernels=SOURCES)
def muladd(
    x: Float[Tensor, "*batch n"], w: Float[Tensor, "*batch n"], *, alpha: float = 1.0
) -> Float[Tensor, "*batch n"]:
    return alpha * x * w


needs_seen: list[int] = []


@muladd.gradient(kernels=SOURCES)
def muladd_grad(grad: Tensor, x: Tensor, w: Tensor, *, alpha: float) -> tuple[Tensor, Tensor]:
    return alpha * grad * w, alpha * grad * x


@oneop.op("runtime::product", kernels=SOURCES)
def product(x: Float[Tensor, "n"], y: Float[Tensor, "n"], z: Float[Tensor, "n"] | None = None) -> Float[Tensor, "n"]:
    """x * y * z, with a gradient in Python that tells what it was asked for."""
    return x * y if z is None else x * y * z


@product.gradient
def product_grad(grad: Tensor, x: Tensor, y: Tensor, z: Tensor | None, *, needs: int) -> tuple[Tensor | None, ...]:
    needs_seen.append(needs)
    rest = 1.0 if z is None else z
    return grad * y * rest, grad * x * rest, None if z is None else grad * x * y


@oneop.op("runtime::shifted", kernels=SOURCES)
def shifted(x: Float[Tensor, "n k"], bias: Float[Tensor, "k"] | None = None) -> Float[Tensor, "n k"]:
    """sin(x) + bias, with a derived gradient."""
    return x.sin() if bias is None else x.sin() + bias


@oneop.op("runtime::total", kernels=SOURCES)
def total(xs: list[Float[Tensor, "*batch n"]], *, scale: float = 1.0) -> Float[Tensor, "*batch n"]:
    return scale * torch.stack(xs).sum(0)


@total.gradient(kernels=SOURCES)
def total_grad(grad: Tensor, xs: list[Tensor], *, scale: float) -> tuple[list[Tensor]]:
    return ([scale * grad for _ in xs],)


class Largest(NamedTuple):
    value: Float[Tensor, ""]
    index: Int64[Tensor, ""]


@oneop.op("runtime::largest", kernels=SOURCES)
def largest(x: Float[Tensor, "n"]) -> Largest:
    value, index = x.max(0)
    return Largest(value, index)


@largest.gradient
def largest_grad(grad_value: Tensor, x: Tensor, index: Tensor) -> Tensor:
    return grad_value * (torch.arange(x.shape[0]) == index).to(x.dtype)


@oneop.op("runtime::exponential", kernels=SOURCES)
def exponential(x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    return x.exp()


@exponential.gradient(kernels=SOURCES)
def exponential_grad(grad: Tensor, x: Tensor, out: Tensor) -> Tensor:
    return grad * out


class Parts(NamedTuple):
    low: Float[Tensor, "n"]
    high: Float[Tensor, "n"]


@oneop.op("runtime::parts", kernels=SOURCES)
def parts(x: Float[Tensor, "n"], *, bound: float = 0.0) -> Parts:
    """Two outputs with a derived gradient."""
    return Parts(x.clamp(max=bound) ** 2, x.clamp(min=bound) ** 3)


class Found(NamedTuple):
    values: Float[Tensor, "?count"]  # first, because opcheck adds what comes behind to it
    places: Int64[Tensor, "?count"]


@oneop.op("runtime::find", kernels=SOURCES)
def find(x: Float[Tensor, "n"], *, mode: str = "right") -> Found:
    """Where x is not 0. Other modes break the rules."""
    (places,) = x.nonzero(as_tuple=True)
    return Found(x[places], places)


@oneop.op("runtime::transpose", kernels=SOURCES, layout="strided")
def transpose(x: Float[Tensor, "*batch n m"]) -> Float[Tensor, "*batch m n"]:
    return x.transpose(-1, -2)


@oneop.op("runtime::gather", kernels=SOURCES)
def gather(x: Float[Tensor, "n k"], index: Int[Tensor, "m"]) -> Float[Tensor, "m k"]:
    return x[index.long()]


@oneop.op("runtime::rows", kernels=SOURCES)
def rows(x: Float[Tensor, "n k"], *, grain: int = 1) -> Float[Tensor, "n"]:
    """Sums of rows, on many threads, through scratch memory."""
    return x.sum(1)


@oneop.op("runtime::pieces", kernels=SOURCES, native_only=True)
def pieces(x: Float[Tensor, "n"], *, grain: int = 1) -> Int64[Tensor, "n"]:
    """The beginning of the piece of work that each element was part of."""


@oneop.op("runtime::trouble", kernels=SOURCES)
def trouble(
    x: Float[Tensor, "n"], *, mode: Literal["fail", "throw", "parallel", "bytes", "empty", "long", "none"] = "none"
) -> Float[Tensor, "n"]:
    return x.clone()


@oneop.op("runtime::tail", kernels=SOURCES, dtypes=["float32"])
def tail(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """x itself. There is a kernel for float32 only, and the reference returns its input."""
    return x


@oneop.op("runtime::native", kernels=SOURCES, native_only=True, dtypes=["float32"])
def native(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """2 * x"""


@oneop.op("runtime::show", kernels=SOURCES, native_only=True)
def show(
    x: Float[Tensor, "n"],
    *,
    real: float,
    whole: int = -3,
    flag: bool = True,
    word: str = "a b",
    choice: Literal["dot", "general"] = "dot",
    reals: list[float] = (0.5, 2.0),
    wholes: list[int] = (1, 2),
    words: list[str] = ("x", ""),
    maybe_real: float | None = None,
    maybe_word: str | None = "w",
    maybe_wholes: list[int] | None = None,
) -> UInt8[Tensor, "?length"]:
    """Its attributes as text."""


def shown(output: Tensor) -> str:
    return bytes(output.tolist()).decode()
