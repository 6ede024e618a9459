"""The oracle: what a call has to give, from the reference in float64, and how far a column may be from it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oneop.check.cases import flat, rebuild
from oneop.targets.pytorch.inputs import short

ROUNDINGS = {torch.float64: 64, torch.float32: 64, torch.float16: 2, torch.bfloat16: 2}
"""By how many units in the last place of the largest value a column may differ, beyond what the reference itself does
in that dtype."""
OWN_ERROR = 8
"""And by how many times the reference's own error: another order of summation rounds differently."""


@dataclass(frozen=True)
class Expected:
    """The values of one pass, by label, the largest difference that is allowed in each, and the dtype that each has.

    The values of floating ones are in float64.
    """

    labels: tuple[str, ...]
    values: tuple[Tensor, ...]
    allowed: tuple[float, ...]
    dtypes: tuple[torch.dtype, ...]

    def complaint(self, got: Sequence[Any]) -> str | None:
        """What is wrong with a column's values, in words; None where they are right."""
        if len(got) != len(self.values):
            return f"it gives {len(got)} values, and the reference {len(self.values)}"
        rows = zip(self.labels, got, self.allowed, self.values, self.dtypes, strict=True)
        for label, value, allowed, wanted, dtype in rows:
            found = _difference(label, value, wanted, dtype, allowed)
            if found is not None:
                return found
        return None


def expect(run: Callable[[Sequence[Any]], list[Tensor]], inputs: Sequence[Any], labels: Sequence[str]) -> Expected:
    """What ``run``, the reference, gives for these inputs in float64; exact values for what is not floating.

    Where the reference cannot compute in float64 (it makes a tensor of a fixed dtype, say), its own dtype stands.
    """
    own = run(inputs)
    try:
        wide = run(_widened(inputs))
        fits = all(
            a.shape == b.shape and a.dtype.is_floating_point == b.dtype.is_floating_point
            for a, b in zip(own, wide, strict=True)
        )
    except Exception:  # whatever the user's own function raises at a dtype that it does not know
        wide, fits = own, True
    if not fits:
        wide = own
    values, allowed = [], []
    for mine, better in zip(own, wide, strict=True):
        if not mine.dtype.is_floating_point:
            values.append(mine)
            allowed.append(0.0)
            continue
        better = better.double()
        error = _largest((mine.double() - better).abs())
        unit = torch.finfo(mine.dtype).eps * _largest(better.abs())
        values.append(better)
        allowed.append(OWN_ERROR * error + ROUNDINGS[mine.dtype] * unit)
    return Expected(tuple(labels), tuple(values), tuple(allowed), tuple(mine.dtype for mine in own))


def _widened(inputs: Sequence[Any]) -> tuple[Any, ...]:
    return rebuild(inputs, [tensor.double() if tensor.dtype.is_floating_point else tensor for tensor in flat(inputs)])


def _largest(values: Tensor) -> float:
    finite = values[torch.isfinite(values)]
    return float(finite.max()) if finite.numel() else 0.0


def _difference(label: str, got: Any, wanted: Tensor, dtype: torch.dtype, allowed: float) -> str | None:
    if not isinstance(got, Tensor):
        return f"`{label}` is of type {type(got).__name__}, and not a tensor"
    if got.shape != wanted.shape:
        return f"`{label}` has shape {tuple(got.shape)}, and the reference's has {tuple(wanted.shape)}"
    if got.dtype != dtype:
        return f"`{label}` is {short(got.dtype)}, and the reference's is {short(dtype)}"
    if not dtype.is_floating_point:
        wrong = got != wanted
        return _place(label, got, wanted, wrong, "exactly") if bool(wrong.any()) else None
    mine = got.detach().double()
    same = (mine == wanted) | (mine.isnan() & wanted.isnan())
    wrong = ~same & ~((mine - wanted).abs() <= allowed)
    return _place(label, mine, wanted, wrong, f"to within {allowed:.2g}") if bool(wrong.any()) else None


def _place(label: str, got: Tensor, wanted: Tensor, wrong: Tensor, how: str) -> str:
    """The worst element: one that is not a number before all others."""
    distance = (got.double() - wanted.double()).abs().nan_to_num(nan=math.inf)
    worst = int(torch.where(wrong, distance, -1.0).flatten().argmax())
    place = [int(index) for index in torch.unravel_index(torch.tensor(worst), wrong.shape)]
    return (
        f"`{label}` differs from the reference at {int(wrong.sum())} of {wrong.numel()} places; at {place} it is"
        f" {got.flatten()[worst].item():.6g}, and {wanted.flatten()[worst].item():.6g} is right {how}"
    )
