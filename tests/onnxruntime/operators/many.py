"""Operators in C++ that together use every feature a definition has. The references are the tests' oracle."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

import oneop


def _codes(text: str) -> int:
    return sum(text.encode())


@oneop.op("ortt::attributes", kernels=["many.cpp"])
def attributes(
    x: Float[Tensor, "n"],
    *,
    ratio: float = 0.5,
    count: int = 3,
    flag: bool = False,
    text: str = 'a "b"?',
    mode: Literal["dot", "general"] = "dot",
    level: Literal[1, 2] = 1,
    ratios: list[float] = [1.5, 0.25],  # noqa: B006
    counts: list[int] = [4, -5],  # noqa: B006
    maybe_ratio: float | None = None,
    maybe_count: int | None = None,
    maybe_text: str | None = None,
    maybe_counts: list[int] | None = None,
) -> Float[Tensor, "n 14"]:
    """What the attributes are, as numbers, on each row."""
    values = [
        ratio,
        count,
        float(flag),
        _codes(text),
        _codes(mode),
        level,
        len(ratios),
        sum(value * (position + 1) for position, value in enumerate(ratios)),
        len(counts),
        sum(value * (position + 1) for position, value in enumerate(counts)),
        -1.0 if maybe_ratio is None else maybe_ratio,
        -1.0 if maybe_count is None else maybe_count,
        -1.0 if maybe_text is None else _codes(maybe_text),
        -1.0 if maybe_counts is None else sum(maybe_counts),
    ]
    return x[:, None] + torch.tensor(values, dtype=x.dtype)


@oneop.op("ortt::labels", kernels=["many.cpp"])
def labels(x: Float[Tensor, "n"], *, names: list[str] = ["a", "bc"]) -> Float[Tensor, "n 2"]:  # noqa: B006
    """How many names there are, and the sum of their characters' codes weighted by position."""
    total = sum(_codes(name) * (position + 1) for position, name in enumerate(names))
    return x[:, None] + torch.tensor([len(names), total], dtype=x.dtype)


@oneop.op("ortt::required", kernels=["many.cpp"])
def required(x: Float[Tensor, "n"], *, scale: float) -> Float[Tensor, "n"]:
    return scale * x


@oneop.op("ortt::affine", kernels=["many.cpp"])
def affine(
    x: Float[Tensor, "n k"],
    shift: Float[Tensor, "k"] | None = None,
    factor: Float[Tensor, "k"] | None = None,
    *,
    alpha: float = 1.0,
) -> Float[Tensor, "n k"]:
    """alpha * factor * x + shift"""
    y = alpha * (x if factor is None else x * factor)
    return y if shift is None else y + shift


class Totals(NamedTuple):
    total: Float[Tensor, "n k"]
    count: Int64[Tensor, "1"]
    largest: Float[Tensor, "n"]


@oneop.op("ortt::totals", kernels=["many.cpp"])
def totals(xs: list[Float[Tensor, "n k"]]) -> Totals:
    total = torch.stack(xs).sum(0)
    return Totals(total, torch.tensor([len(xs)]), total.amax(1))


class Positive(NamedTuple):
    values: Float[Tensor, "?p"]
    positions: Int64[Tensor, "?p"]


@oneop.op("ortt::positive", kernels=["many.cpp"])
def positive(x: Float[Tensor, "n"]) -> Positive:
    positions = torch.nonzero(x > 0)[:, 0]
    return Positive(x[positions], positions)


@oneop.op("ortt::windows", kernels=["many.cpp"])
def windows(x: Float[Tensor, "h w"], *, kernel: int = 3, stride: int = 1) -> Float[Tensor, "(h-kernel)//stride+1 2*w"]:
    """Sums of windows of rows, twice side by side."""
    sums = x.unfold(0, kernel, stride).sum(-1)
    return torch.cat([sums, sums], 1)


@oneop.op("ortt::row_sums", kernels=["many.cpp"])
def row_sums(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    return x.sum(-1)


@oneop.op("ortt::gather", kernels=["many.cpp"], dtypes=["float32", "float64", "int32", "int64"])
def gather(x: Float[Tensor, "n"], index: Int[Tensor, "k"]) -> Float[Tensor, "k"]:
    return x[index.long()]


@oneop.op("ortt::doubled", kernels=["many.cpp"], dtypes=["float16", "bfloat16"])
def doubled(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x + x


@oneop.op("ortt::failing", kernels=["many.cpp"])
def failing(x: Float[Tensor, "n"], *, how: int = 0) -> Float[Tensor, "?m"]:
    """Fails in as many ways as there are."""
    return x.clone()


@oneop.op("ortt::nested", kernels=["many.cpp"])
def nested(x: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    """x + 1, in a loop inside a loop, by way of scratch memory."""
    return x + 1
