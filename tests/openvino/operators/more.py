"""Operators for what is particular to OpenVINO: threads, every dtype, names that OpenVINO has of its own."""

from typing import NamedTuple

import torch
from jaxtyping import BFloat16, Bool, Float, Float16, Float64, Int16, Int64, Shaped, UInt8, UInt16, UInt32, UInt64
from torch import Tensor

import oneop
from oneop.definition.dtypes import BY_NAME


@oneop.op("ovt::softmax", kernels=["more.cpp"], dtypes=["float32"])
def softmax(x: Float[Tensor, "n"], *, axis: int = 0) -> Float[Tensor, "n"]:
    """Not a softmax, but for its name in files."""
    return x + 1


@oneop.op("ovt::threads", kernels=["more.cpp"], dtypes=["float32"])
def threads(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """x, but for the first element: how many threads the kernel ran on."""
    return x


@oneop.op(
    "ovt::minus",
    kernels=["more.cpp"],
    dtypes=list(BY_NAME),
)
def minus(x: Shaped[Tensor, "n"], y: Shaped[Tensor, "n"]) -> Shaped[Tensor, "n"]:
    """x - y in the dtype's own arithmetic, which wraps around for integers; x and not y for booleans."""
    return x & ~y if x.dtype == torch.bool else x - y


class Kinds(NamedTuple):
    halves: Float64[Tensor, "n"]
    shorts: Int16[Tensor, "n"]
    longs: Int64[Tensor, "n"]
    bytes: UInt8[Tensor, "n"]
    positive: Bool[Tensor, "n"]
    small: Float16[Tensor, "n"]
    ushorts: UInt16[Tensor, "n"]
    uints: UInt32[Tensor, "n"]
    ulongs: UInt64[Tensor, "n"]
    brain: BFloat16[Tensor, "n"]


@oneop.op("ovt::kinds", kernels=["more.cpp"], dtypes=["float32"], native_only=True)
def kinds(x: Float[Tensor, "n"]) -> Kinds:
    """Outputs of dtypes that no input has: x / 2, whole parts, x * 2**20, x > 0."""


class Longs(NamedTuple):
    up: Int64[Tensor, "n"]
    down: Int64[Tensor, "n"]


@oneop.op("ovt::longs", kernels=["more.cpp"], dtypes=["float32"], native_only=True)
def longs(x: Float[Tensor, "n"]) -> Longs:
    """x * 2**33 and -x * 2**33."""


@oneop.op("ovt::precise", kernels=["more.cpp"], dtypes=["float64"])
def precise(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """(x + 1e-9) - x, which float32 has no room for."""
    return (x + 1e-9) - x


@oneop.op("ovt::chain", kernels=["more.cpp"], dtypes=["float32"])
def chain(
    a: Float[Tensor, "n"] | None, b: Float[Tensor, "n"], c: Float[Tensor, "n"] | None, d: Float[Tensor, "n"] | None
) -> Float[Tensor, "n"]:
    """1000 a + 100 b + 10 c + d, without those that are absent."""
    return sum(factor * t for factor, t in zip((1000, 100, 10, 1), (a, b, c, d), strict=True) if t is not None)


@oneop.op("ovt::placed", kernels=["more.cpp"], dtypes=["float32"])
def placed(x: Float[Tensor, "n"], *, element_type: str = "f32", size: int = 2, offset: int = 1) -> Float[Tensor, "n"]:
    """With the attributes of a constant in OpenVINO's files."""
    return x * size + offset + len(element_type)
