"""Sums of rows of integers, in C: the sum needs more bits than its terms."""

import torch
from jaxtyping import Int32, Int64
from torch import Tensor

import oneop


@oneop.op("campaign::tally", kernels=["tally.c"])
def tally(x: Int32[Tensor, "n m"], weight: Int32[Tensor, "m"] | None = None) -> Int64[Tensor, "n"]:
    wide = x.long()
    return (wide if weight is None else wide * weight.long()).sum(1)


@tally.example
def large():
    return torch.full((2, 4), 2**30, dtype=torch.int32), torch.tensor([1, 2, 3, 4], dtype=torch.int32)
