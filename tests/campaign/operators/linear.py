"""A linear layer with an optional bias and two factors: the kernel and its gradient are in C++."""

import torch
from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("campaign::linear", kernels=["linear.cpp"])
def linear(
    x: Float[Tensor, "n k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, "n m"]:
    y = alpha * (x @ weight.T)
    return y if bias is None else y + beta * bias


@linear.gradient(kernels=["linear.cpp"])
def linear_grad(grad, x, weight, bias, *, alpha, beta):
    return alpha * grad @ weight, alpha * grad.T @ x, None if bias is None else beta * grad.sum(0)


@linear.example
def wide():
    return torch.randn(3, 70), torch.randn(65, 70), torch.randn(65), {"alpha": 0.5, "beta": -2.0}
