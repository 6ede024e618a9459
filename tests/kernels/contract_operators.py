"""Operators that together use all of the kernel contract; sources/contract.cpp and contract.c hold their kernels."""

from pathlib import Path
from typing import Literal, NamedTuple

from jaxtyping import Bool, Float, Float32, Int, Int64, Shaped, UInt8
from torch import Tensor

from oneop.definition.dtypes import BY_NAME
from oneop.definition.gradient import gradient_definition
from oneop.definition.record import Definition
from oneop.definition.signature import definition_of
from oneop.kernels.spec import KernelOptions, KernelSpec

SOURCES = Path(__file__).with_name("sources").resolve()


def scaled_linear(
    x: Float[Tensor, "n k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, "n m"]:
    """alpha * x @ weight.T + beta * bias"""


def scaled_linear_grad(grad, x, weight, bias, *, alpha, beta):
    """The gradients of a scaled linear layer."""


def show(
    x: Float[Tensor, "n"],
    *,
    a_float: float,
    an_int: int,
    a_bool: bool,
    a_str: str,
    a_choice: Literal["dot", "general"] = "dot",
    floats: list[float] = (),
    ints: list[int] = (1, 2),
    strings: list[str] = ("a\\?*/", ""),
    maybe_float: float | None = None,
    maybe_int: int | None = None,
    maybe_bool: bool | None = None,
    maybe_str: str | None = None,
    maybe_floats: list[float] | None = None,
    maybe_ints: list[int] | None = None,
    maybe_strings: list[str] | None = None,
) -> UInt8[Tensor, "?length"]:
    """Writes the values of its attributes as text."""


def total(xs: list[Float[Tensor, "*batch n"]], *, scale: float = 1.0) -> Float[Tensor, "*batch n"]:
    """The sum of its inputs."""


def total_grad(grad, xs, *, scale): ...


class Found(NamedTuple):
    places: Int64[Tensor, "?count 2"]
    values: Float[Tensor, "?count"]
    rows: Int64[Tensor, ""]


def find(x: Float[Tensor, "n m"], *, mode: int = 0) -> Found:
    """Where x is not 0. Other modes break the rules."""


class BatchFound(NamedTuple):
    out: Float[Tensor, "*batch ?count 2"]


def spread(x: Float[Tensor, "*batch n"], *, times: int = 1) -> BatchFound:
    """Each row's first and last value, times over."""


def transpose(x: Float[Tensor, "*batch n m"], y: Float[Tensor, "m"] | None = None) -> Float[Tensor, "*batch m n"]:
    """x with its last two dimensions swapped, plus y."""


def gather(x: Float[Tensor, "n k"], index: Int[Tensor, "m"]) -> Float[Tensor, "m k"]:
    """Rows of x by index."""


def choose(
    mask: Bool[Tensor, "n"], a: Float[Tensor, "n"], times: Int64[Tensor, "n"], b: Float[Tensor, "n"]
) -> Float[Tensor, "n"]:
    """Gradients of some inputs only, and not of the first."""


def choose_grad(grad, mask, a, times, b): ...


def both(a: Bool[Tensor, "n"], b: Bool[Tensor, "n"]) -> Bool[Tensor, "n"]:
    """a and b. No dtype varies."""


def dot(x: Float[Tensor, "n"], y: Float32[Tensor, "n"]) -> Float32[Tensor, ""]:
    """A sum of products, in float32."""


def odd_names(
    call: Shaped[Tensor, "T C args"],
    ctx: Shaped[Tensor, ""] | None = None,
    *,
    x: int = 1,
    item: float = 0.5,
) -> Shaped[Tensor, "args C*x T"]:
    """Names that generated code might want for itself."""


def trouble(x: Float[Tensor, "n"], *, mode: str) -> Float[Tensor, "n"]:
    """Fails in the way that mode says."""


def _definitions() -> dict[str, Definition]:
    strided = (transpose,)
    plain = (scaled_linear, show, total, find, spread, gather, choose, both, dot, odd_names, trouble)
    found = [definition_of(function, f"contract::{function.__name__}") for function in plain]
    found += [definition_of(function, f"contract::{function.__name__}", layout="strided") for function in strided]
    by_base = {item.base: item for item in found}
    for function in (scaled_linear_grad, total_grad, choose_grad):
        base = function.__name__
        by_base[base] = gradient_definition(by_base[base.removesuffix("_grad")], function)
    return by_base


DEFINITIONS = _definitions()
ALL_FLOATS = tuple(BY_NAME[name] for name in ("float32", "float64", "float16", "bfloat16"))
DTYPES = {
    "scaled_linear": ALL_FLOATS,
    "total": ALL_FLOATS,
    "gather": tuple(BY_NAME[name] for name in ("float32", "float64", "int32", "int64")),
    "odd_names": (BY_NAME["float64"], BY_NAME["int16"], BY_NAME["bool"]),
}
FLOAT32_ONLY = (BY_NAME["float32"],)


def specs(suffix: str) -> list[KernelSpec]:
    """The kernels in one language: ".c" or ".cpp"."""
    return [
        KernelSpec(definition, (SOURCES / f"contract{suffix}",), KernelOptions(dtypes=DTYPES.get(base, FLOAT32_ONLY)))
        for base, definition in DEFINITIONS.items()
    ]
