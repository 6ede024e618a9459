"""Finite differences: gradients measured on the values alone, to be compared with those that an operator computes.

Central differences at two steps, extrapolated (Richardson): with D(h) = (f(x + h) - f(x - h)) / 2h, the estimate is
(4 D(h/2) - D(h)) / 3, whose error is of the order of |D(h/2) - D(h)| h^2 at most, and of eps |f| / h.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

STEP = 1e-4
MOST = 36
"""So many elements of a call are moved, chosen at random where there are more."""


@dataclass(frozen=True)
class Difference:
    """One element's: which tensor, where in it, the slope measured and the most it can be off."""

    tensor: int
    place: int
    slope: float
    error: float


def differences(function: Callable[[list[Tensor]], Tensor], tensors: Sequence[Tensor], seed: int) -> list[Difference]:
    """The slopes of a function of tensors in float64 that gives one number.

    Elements at a kink are left out: there the slopes on both sides differ, and no number is right.
    """
    tensors = [tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in tensors]
    places = [(index, place) for index, tensor in enumerate(tensors) for place in range(tensor.numel())]
    if len(places) > MOST:
        order = torch.randperm(len(places), generator=torch.Generator().manual_seed(seed))[:MOST]
        places = [places[int(index)] for index in order]
    middle = function([tensor.clone() for tensor in tensors]).item()
    found = []
    for index, place in places:
        measured = _difference(function, tensors, index, place, middle)
        if measured is not None:
            found.append(measured)
    return found


def _difference(
    function: Callable[[list[Tensor]], Tensor], tensors: Sequence[Tensor], index: int, place: int, middle: float
) -> Difference | None:
    at = float(tensors[index].flatten()[place])
    step = STEP * max(1.0, abs(at))

    def value(moved: float) -> float:
        changed = [tensor.clone() for tensor in tensors]
        changed[index].view(-1)[place] = moved
        return function(changed).item()

    right, left = value(at + step), value(at - step)
    near_right, near_left = value(at + step / 2), value(at - step / 2)
    if not all(abs(number) < float("inf") for number in (right, left, near_right, near_left, middle)):
        return None
    wide, narrow = (right - left) / (2 * step), (near_right - near_left) / step
    ahead, behind = (near_right - middle) / (step / 2), (middle - near_left) / (step / 2)
    slope = (4 * narrow - wide) / 3
    # Where f is smooth the one-sided slopes differ by h f'', and by half of that at half the step.
    far_ahead, far_behind = (right - middle) / step, (middle - left) / step
    bend, far_bend = abs(ahead - behind), abs(far_ahead - far_behind)
    noise = 1e-15 * (abs(middle) + abs(right) + abs(left)) / step
    if bend > 1e-7 + 100 * noise and bend > 0.75 * far_bend:
        return None
    return Difference(index, place, slope, abs(narrow - wide) + 30 * noise)
