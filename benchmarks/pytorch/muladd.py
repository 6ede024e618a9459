"""The operator that is measured: alpha * x * w, with its gradient, both in C++."""

from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("bench::muladd", kernels=["muladd.cpp"])
def muladd(
    x: Float[Tensor, "*batch n"], w: Float[Tensor, "*batch n"], *, alpha: float = 1.0
) -> Float[Tensor, "*batch n"]:
    """alpha * x * w"""
    return alpha * x * w


@muladd.gradient(kernels=["muladd_grad.cpp"])
def muladd_grad(grad: Tensor, x: Tensor, w: Tensor, *, alpha: float) -> tuple[Tensor, Tensor]:
    return alpha * grad * w, alpha * grad * x
