"""Mean, place of the largest and spread of each row, in C: several outputs, one of integers."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import oneop


class Moments(NamedTuple):
    mean: Float[Tensor, "n"]
    largest: Int64[Tensor, "n"]
    spread: Float[Tensor, "n"]


@oneop.op("campaign::moments", kernels=["moments.c"], dtypes=["float32", "float64"])
def moments(x: Float[Tensor, "n m"]) -> Moments:
    mean = x.mean(1)
    return Moments(mean, x.argmax(1), ((x - mean[:, None]) ** 2).mean(1))


@moments.gradient(kernels=["moments.c"], dtypes=["float32", "float64"])
def moments_grad(grad_mean, grad_spread, x, mean):
    return ((grad_mean[:, None] + 2 * grad_spread[:, None] * (x - mean[:, None])) / x.shape[1],)


@moments.example(m="1 <= m")
def one_column():
    return (torch.randn(3, 1),)
