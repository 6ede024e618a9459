"""x * sigmoid(beta * x) in Python, with a written gradient."""

import torch
from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("campaign::swish")
def swish(x: Float[Tensor, "*batch n"], *, beta: float = 1.0) -> Float[Tensor, "*batch n"]:
    return x * torch.sigmoid(beta * x)


@swish.gradient
def swish_grad(grad, x, *, beta):
    s = torch.sigmoid(beta * x)
    return grad * (s + beta * x * s * (1 - s))
