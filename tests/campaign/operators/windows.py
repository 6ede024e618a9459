"""Sums of squares of windows, for any number of leading dimensions: sizes are expressions of attributes."""

from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("campaign::windows", kernels=["windows.cpp"])
def windows(
    x: Float[Tensor, "*batch n"], *, size: int = 2, stride: int = 1
) -> Float[Tensor, "*batch (n-size)//stride+1"]:
    return x.unfold(-1, size, stride).square().sum(-1)


windows.example(n="size <= n", size="1 <= size <= 4", stride="1 <= stride <= 3")
