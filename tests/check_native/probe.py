"""An operator whose kernel does one of many wrong things, as an attribute says."""

from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("native::probe", kernels=["probe.cpp"], dtypes=["float32", "bfloat16"])
def probe(x: Float[Tensor, "n"], *, fault: str = "") -> Float[Tensor, "n"]:
    return 2 * x


@probe.gradient(kernels=["probe.cpp"], dtypes=["float32"])
def probe_grad(grad, x, *, fault):
    return (2 * grad,)


@oneop.op("native::pairs", kernels=["probe.c"], dtypes=["float32"], layout="strided")
def pairs(x: Float[Tensor, "n m"], *, fault: str = "") -> Float[Tensor, "n"]:
    return x.sum(1)
