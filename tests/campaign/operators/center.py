"""Rows without their mean, in C++, for any number of leading dimensions."""

from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("campaign::center", kernels=["center.cpp"])
def center(x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    return x - x.mean(-1, keepdim=True)


@center.gradient(kernels=["center.cpp"])
def center_grad(grad, x):
    return grad - grad.mean(-1, keepdim=True)
