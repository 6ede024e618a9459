"""Products of every column with every column, of tensors as they lie in memory."""

import torch
from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("campaign::outer", kernels=["outer.cpp"], layout="strided")
def outer(x: Float[Tensor, "n m"], y: Float[Tensor, "m k"]) -> Float[Tensor, "n k m"]:
    return x[:, None, :] * y.T[None]


@outer.gradient(kernels=["outer.cpp"])
def outer_grad(grad, x, y):
    return (grad * y.T[None]).sum(1), (grad * x[:, None, :]).sum(0).T


@outer.example
def transposed():
    return torch.randn(3, 2).T, torch.randn(4, 3).T
