"""An operator in C, in a file of its own: its library shares the namespace of many.py's."""

from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("ortt::scaled", kernels=["plain.c"])
def scaled(x: Float[Tensor, "n"], *, alpha: float = 2.0) -> Float[Tensor, "n"]:
    return alpha * x
