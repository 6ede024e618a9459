"""Operators with kernels for a program without Python, one of which counts how often the kernel ran."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import oneop

KERNELS = ["operators.cpp"]


@oneop.op("serving::scaled", kernels=KERNELS, dtypes=["float32"])
def scaled(
    x: Float[Tensor, "n k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float = 1.0,
    mode: Literal["plain", "relu"] = "plain",
) -> Float[Tensor, "n m"]:
    y = alpha * (x @ weight.T)
    y = y if bias is None else y + bias
    return torch.relu(y) if mode == "relu" else y


class Range(NamedTuple):
    least: Float[Tensor, "n"]
    greatest: Float[Tensor, "n"]


@oneop.op("serving::spread", kernels=KERNELS)
def spread(xs: list[Float[Tensor, "n m"]]) -> Range:
    """Of all tensors together, one a row."""
    together = torch.cat(xs, 1)
    return Range(together.amin(1), together.amax(1))


@oneop.op("serving::kept", kernels=KERNELS)
def kept(x: Float[Tensor, "n"], *, above: float = 0.0) -> Float[Tensor, "?k"]:
    return x[x > above]


@oneop.op("serving::runs", kernels=KERNELS, native_only=True)
def runs(x: Float[Tensor, "n m"]) -> Int64[Tensor, ""]:
    """How often the kernel of `scaled` ran since its library was loaded. Takes its result, to run after it."""


@oneop.op("serving::doubled")
def doubled(x: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    return 2 * x


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 3)
        self.weight = torch.nn.Parameter(torch.randn(5, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        hidden = self.first(x)
        y = scaled(hidden, self.weight, alpha=2.0, mode="relu")
        z = scaled(hidden, self.weight, self.weight.sum(1))
        least, greatest = spread([y, z])
        return y, least, greatest, kept(greatest, above=0.5), runs(z)
