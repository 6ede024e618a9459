"""A small operator with kernels for both devices, each in a file of its own."""

from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("cuda_alone::twice", kernels=["twice.cpp", "twice.cu"], dtypes=["float32"])
def twice(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """2 * x"""
    return 2 * x
