"""A weighted sum of any number of tensors, in C."""

import torch
from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("campaign::total", kernels=["total.c"], dtypes=["float32", "float64"])
def total(
    scale: Float[Tensor, ""], xs: list[Float[Tensor, "*batch n"]], *, power: int = 1
) -> Float[Tensor, "*batch n"]:
    return scale * sum(x**power for x in xs)


@total.gradient(kernels=["total.c"], dtypes=["float32", "float64"])
def total_grad(grad, scale, xs, *, power):
    return (grad * sum(x**power for x in xs)).sum(), [scale * grad * power * x ** (power - 1) for x in xs]


@total.example(power="1 <= power <= 3")
def three():
    return torch.tensor(0.5), [torch.randn(2, 3) for _ in range(3)], {"power": 2}
