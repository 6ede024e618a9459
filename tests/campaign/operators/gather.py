"""Rows of a matrix by their numbers; the gradient adds up rows that were taken twice."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import oneop


@oneop.op("campaign::gather", kernels=["gather.cpp"])
def gather(x: Float[Tensor, "n m"], index: Int64[Tensor, "k"]) -> Float[Tensor, "k m"]:
    return x[index]


@gather.gradient(kernels=["gather.cpp"])
def gather_grad(grad, x, index):
    return torch.zeros_like(x).index_add(0, index, grad), None


@gather.example(index="0 <= index < n")
def twice_the_last_row():
    return torch.randn(4, 3), torch.tensor([3, 0, 3])
