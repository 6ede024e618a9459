"""The operators of these tests: with a kernel, without one, and one that calls another."""

from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("insp::affine", kernels=["affine.cpp"], dtypes=["float32"])
def affine(
    x: Float[Tensor, "*batch n"],
    shift: Float[Tensor, "n"] | None = None,
    *,
    alpha: float = 1.0,
    mode: str = "plain",
    power: float | None = None,
) -> Float[Tensor, "*batch n"]:
    y = alpha * x if mode == "plain" else x - alpha
    if power is not None:
        y = y + power
    return y if shift is None else y + shift


@oneop.op("insp::twice")
def twice(x: Float[Tensor, "n"], *, by: float = 2.0) -> Float[Tensor, "n"]:
    return by * affine(by * x)
