"""A softmax over the last dimension, for any number of leading ones; its gradient uses what forward gave."""

import torch
from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("campaign::softmax", kernels=["softmax.cpp"])
def softmax(x: Float[Tensor, "*batch n"], *, temperature: float = 1.0) -> Float[Tensor, "*batch n"]:
    return torch.softmax(x / temperature, -1)


@softmax.gradient(kernels=["softmax.cpp"])
def softmax_grad(grad, x, out, *, temperature):
    return out * (grad - (grad * out).sum(-1, keepdim=True)) / temperature


softmax.example(temperature="0.1 <= temperature <= 10")
