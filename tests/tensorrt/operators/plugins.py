"""Operators that together use every feature a TensorRT plugin has. The references are the tests' oracle."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, Int8, Int64
from torch import Tensor

import oneop

SOURCES = ["plugins.cpp"]


def _codes(text: str) -> int:
    return sum(text.encode())


@oneop.op("trtt::attributes", kernels=SOURCES)
def attributes(
    x: Float[Tensor, "n"],
    *,
    needed: float,
    ratio: float = 0.5,
    count: int = 3,
    flag: bool = True,
    text: str = 'a "b"?',
    mode: Literal["dot", "general"] = "dot",
    level: Literal[1, 2] = 1,
    ratios: list[float] = [1.5, 0.25],  # noqa: B006
    counts: list[int] = [4, -5],  # noqa: B006
    maybe_ratio: float | None = None,
    maybe_count: int | None = None,
    maybe_flag: bool | None = None,
    maybe_text: str | None = None,
    maybe_ratios: list[float] | None = None,
    maybe_counts: list[int] | None = None,
) -> Float[Tensor, "n 17"]:
    """What the attributes are, as numbers, on each row."""
    values = [
        needed,
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
        -1.0 if maybe_flag is None else float(maybe_flag),
        -1.0 if maybe_text is None else _codes(maybe_text),
        -1.0 if maybe_ratios is None else sum(maybe_ratios),
        -1.0 if maybe_counts is None else sum(maybe_counts),
    ]
    return x[:, None] + torch.tensor(values, dtype=x.dtype)


@oneop.op("trtt::affine", kernels=SOURCES)
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


@oneop.op("trtt::totals", kernels=SOURCES)
def totals(shift: Float[Tensor, "k"] | None, xs: list[Float[Tensor, "n k"]]) -> Totals:
    total = torch.stack(xs).sum(0) + (0 if shift is None else shift)
    return Totals(total, torch.tensor([len(xs)]), total.amax(1))


class Positive(NamedTuple):
    values: Float[Tensor, "?p"]
    positions: Int64[Tensor, "?p"]
    pairs: Float[Tensor, "2 ?q"]


@oneop.op("trtt::positive", kernels=SOURCES)
def positive(x: Float[Tensor, "n"]) -> Positive:
    """The positive numbers and their places; and those that are not, twice."""
    positions = torch.nonzero(x > 0)[:, 0]
    others = x[x <= 0]
    return Positive(x[positions], positions, torch.stack([others, others]))


class Sizes(NamedTuple):
    floors: Float[Tensor, "(n-9)//m+9 n%m"]
    chosen: Float[Tensor, "min(n,m,3) max(n-4,2)"]
    mixed: Float[Tensor, "2*(n+m)-extra n*m//2"]
    fixed: Float[Tensor, "3 7-2*2"]


@oneop.op("trtt::sizes", kernels=SOURCES)
def sizes(x: Float[Tensor, "n m"], *, extra: int = 1) -> Sizes:
    """Every kind of expression; each output counts its elements."""
    n, m = x.shape

    def counted(*shape: int) -> Tensor:
        return torch.arange(shape[0] * shape[1]).reshape(shape).to(x)

    return Sizes(
        counted((n - 9) // m + 9, n % m),
        counted(min(n, m, 3), max(n - 4, 2)),
        counted(2 * (n + m) - extra, n * m // 2),
        counted(3, 3),
    )


@oneop.op("trtt::windows", kernels=SOURCES)
def windows(x: Float[Tensor, "h w"], *, kernel: int = 3, stride: int = 1) -> Float[Tensor, "(h-kernel)//stride+1 2*w"]:
    """Sums of windows of rows, twice side by side."""
    sums = x.unfold(0, kernel, stride).sum(-1)
    return torch.cat([sums, sums], 1)


@oneop.op("trtt::row_sums", kernels=SOURCES)
def row_sums(x: Float[Tensor, "*batch d"], scale: Float[Tensor, ""] | None = None) -> Float[Tensor, "*batch"]:
    return x.sum(-1) * (1 if scale is None else scale)


@oneop.op("trtt::take", kernels=SOURCES, dtypes=["float32", "float64", "float16", "int32", "int64", "int16"])
def take(x: Float[Tensor, "n"], index: Int[Tensor, "k"]) -> Float[Tensor, "k"]:
    return x[index.long()]


@oneop.op("trtt::doubled", kernels=SOURCES, dtypes=["float16", "bfloat16"])
def doubled(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x + x


@oneop.op("trtt::quantised", kernels=SOURCES)
def quantised(x: Int8[Tensor, "n"]) -> Int8[Tensor, "n"]:
    return -x


@oneop.op("trtt::failing", kernels=SOURCES)
def failing(x: Float[Tensor, "n"], *, how: int = 0) -> Float[Tensor, "?m"]:
    """Fails in as many ways as there are."""
    return x.clone()


@oneop.op("trtt::scratching", kernels=SOURCES)
def scratching(x: Float[Tensor, "n"], *, blocks: int = 2, size: int = 1000) -> Float[Tensor, "n"]:
    """x + blocks, by way of that many blocks of scratch memory."""
    return x + blocks
