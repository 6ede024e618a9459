"""The values of a tensor, from a seed: the same seed gives the same values on every machine."""

from dataclasses import dataclass

import torch
from torch import Tensor

from oneop.check.constraints import Bounds
from oneop.check.layouts import LAYOUTS

FREE = Bounds()
STYLES = ("simple", "random", "wide", "zeros", "special")
"""How floating values are made, the simplest first: multiples of 1/4; normal; over four decades; zeros of both signs
and ones; normal with NaN and infinities among them."""


class NoValueError(Exception):
    """No value is within the bounds."""


@dataclass(frozen=True)
class Made:
    """How a tensor was made: the name of a layout and a style, a seed, and what its values satisfy.

    Integers without bounds are in [0, below).
    """

    layout: str = "contiguous"
    style: str = "simple"
    seed: int = 0
    bounds: Bounds = FREE
    below: int = 4


def make(shape: tuple[int, ...], dtype: torch.dtype, made: Made) -> Tensor:
    """A tensor as ``made`` says. Raises NoValueError where nothing is within the bounds."""
    bounds = made.bounds
    generator = torch.Generator().manual_seed(made.seed)
    if dtype == torch.bool:
        flat = torch.randint(0, 2, shape, generator=generator).to(dtype)
    elif dtype.is_floating_point:
        flat = _floating(shape, made.style, bounds, generator).to(dtype)
    else:
        flat = _integers(shape, dtype, bounds, made.below, generator).to(dtype)
    if "sorted" in bounds.words and flat.ndim:
        flat = flat.sort(-1).values
    return LAYOUTS[made.layout].apply(flat.contiguous())


def _integers(
    shape: tuple[int, ...], dtype: torch.dtype, bounds: Bounds, below: int, generator: torch.Generator
) -> Tensor:
    low, high = bounds.integers(0, max(below - 1, 0))
    low, high = max(low, torch.iinfo(dtype).min), min(high, torch.iinfo(dtype).max)
    if low > high:
        if 0 in shape:
            return torch.zeros(shape, dtype=torch.int64)
        raise NoValueError
    if "unique" in bounds.words and shape:
        if high - low + 1 < shape[-1]:
            raise NoValueError
        rows = [torch.randperm(high - low + 1, generator=generator)[: shape[-1]] for _ in range(_count(shape[:-1]))]
        return low + (torch.stack(rows).reshape(shape) if rows else torch.zeros(shape, dtype=torch.int64))
    drawn = torch.randint(low, high + 1, shape, generator=generator)
    if "nonzero" in bounds.words:
        if low == high == 0:
            raise NoValueError
        drawn = torch.where(drawn == 0, torch.tensor(high if high else low), drawn)
    return drawn


def _floating(shape: tuple[int, ...], style: str, bounds: Bounds, generator: torch.Generator) -> Tensor:
    if bounds.low is not None or bounds.high is not None:
        return _within(shape, style, bounds, generator)
    if style == "simple":
        drawn = torch.randint(-8, 9, shape, generator=generator).double() / 4
    elif style == "zeros":
        drawn = torch.tensor([0.0, -0.0, 1.0, -1.0], dtype=torch.float64)[
            torch.randint(0, 4, shape, generator=generator)
        ]
    else:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    if style == "wide":
        drawn = drawn * 10.0 ** (4 * torch.rand(shape, generator=generator, dtype=torch.float64) - 2)
    if style == "special" and "finite" not in bounds.words:
        odd = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=torch.float64)
        picked = odd[torch.randint(0, 3, shape, generator=generator)]
        some = torch.rand(shape, generator=generator) < 0.2
        if some.numel():  # one at least
            some.view(-1)[int(torch.randint(0, some.numel(), (), generator=generator))] = True
        drawn = torch.where(some, picked, drawn)
    if "nonzero" in bounds.words:
        drawn = torch.where(drawn == 0, torch.ones_like(drawn), drawn)
    if "unique" in bounds.words and shape:
        drawn = drawn + torch.arange(shape[-1])
    return drawn


def _within(shape: tuple[int, ...], style: str, bounds: Bounds, generator: torch.Generator) -> Tensor:
    """Values between bounds: eighths of the way in the simple style, anywhere on it otherwise."""
    if style == "simple":
        share = torch.randint(1, 8, shape, generator=generator).double() / 8
    else:
        share = 0.001 + 0.998 * torch.rand(shape, generator=generator, dtype=torch.float64)
    if bounds.low is not None and bounds.high is not None:
        if bounds.low > bounds.high:
            raise NoValueError
        return bounds.low + (bounds.high - bounds.low) * share
    # Half of the values lie within 2 of the bound that there is.
    away = 2 * share / (1 - share)
    return bounds.low + away if bounds.low is not None else bounds.high - away  # type: ignore[operator]


def _count(sizes: tuple[int, ...]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count
