"""The positive numbers of a tensor, as many as there are, and their places."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import oneop


class Positive(NamedTuple):
    value: Float[Tensor, "?k"]
    place: Int64[Tensor, "?k"]


@oneop.op("campaign::positive", kernels=["positive.cpp"])
def positive(x: Float[Tensor, "n"], *, least: float = 0.0) -> Positive:
    place = torch.nonzero(x > least).flatten()
    return Positive(x[place] - least, place)
