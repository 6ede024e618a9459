"""A turn of pairs by an angle, and the turned pairs' sums, in Python: the gradient is derived."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

import oneop


class Rotated(NamedTuple):
    turned: Float[Tensor, "2 n"]
    added: Float[Tensor, "n"]


@oneop.op("campaign::rotate")
def rotate(pairs: Float[Tensor, "n 2"], angle: Float[Tensor, ""], *, turns: int = 1, flip: bool = False) -> Rotated:
    c, s = torch.cos(turns * angle), torch.sin(turns * angle)
    turn = torch.stack([torch.stack([c, -s]), torch.stack([s, c])])
    turned = turn @ pairs.T
    turned = turned.flip(0) if flip else turned.clone()
    return Rotated(turned, turned.sum(0))
