"""Small operators: enough to see what happens when the generated sources are changed by hand."""

from jaxtyping import Float
from torch import Tensor

import oneop

SOURCES = ["small.cpp", "small.cu"]


@oneop.op("trts::scaled", kernels=SOURCES)
def scaled(x: Float[Tensor, "n"], *, alpha: float = 1.0, beta: float = 0.0) -> Float[Tensor, "n"]:
    """alpha * x + beta"""
    return alpha * x + beta


@oneop.op("trts::shifted", kernels=SOURCES, dtypes=["float32", "float16"])
def shifted(x: Float[Tensor, "n"], *, by: float | None = None, times: int = 1) -> Float[Tensor, "n"]:
    return x if by is None else x + by * times


@oneop.op("trts::repeated", kernels=SOURCES)
def repeated(x: Float[Tensor, "n"], *, times: int = 2) -> Float[Tensor, "times n"]:
    """x, several times, by way of scratch memory."""
    return x.expand(times, -1)


@oneop.op("trts::kept", kernels=SOURCES)
def kept(x: Float[Tensor, "n"]) -> Float[Tensor, "?k"]:
    """The positive numbers."""
    return x[x > 0]
