"""What a transform of a call has to give: the reference in float64, and how far from it an answer may lie.

The tolerance comes from the call itself. With eps the resolution of its dtype, an element of the answer may differ by

    max(8, 4 R) * (eps |y| + (1 + N) S) + 4 |y_own - y|

where y is the reference in float64 and y_own the reference in the call's own dtype. S is how far y moves where every
number on the way is moved by eps, up or down at random (the largest of several tries): inputs, float attributes, and
the result of each operation of the reference, as in Monte Carlo arithmetic (Parker, "Monte Carlo Arithmetic",
UCLA CSD-970002, 1997). N is the number of terms that an element may be the sum of, since a plain loop loses a bit more
with each; R is how many times (eps |y| + (1 + N) S) the reference's own rounding comes to. So small calls are held to a
few units in the last place, and only a call with many terms may lose more.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from oneop.check.cases import Case
from oneop.check.subject import Named, Subject
from oneop.check.transforms import Transform

MOVES = 5
"""How often the inputs are moved at random."""


class ReferenceRefusedError(Exception):
    """The reference does not take this call: whatever the operator does with it is right."""


def require_taken(subject: Subject, case: Case) -> None:
    """Raises ReferenceRefusedError where the reference raises: a kernel may do anything with such a call."""
    if not subject.has_reference:
        return
    try:
        subject.reference(case.inputs, case.attributes)
    except Exception as error:
        raise ReferenceRefusedError(str(error)) from error


@dataclass
class Expected:
    """One tensor: ``value`` in float64 (or as it is, where it is no floating one), ``own`` in the call's own dtype.

    ``tolerance`` is None where the answer has to be exact; ``others`` are further right answers, of calls that
    rounding cannot tell from this one.
    """

    name: str
    value: Tensor
    own: Tensor
    tolerance: Tensor | None
    others: tuple[Tensor, ...] = ()


@dataclass
class Expectation:
    """The tensors of a result. Their tolerances are the least possible until ``refine`` works out how far rounding may
    carry: most answers are right without it, and it takes several runs of the reference.
    """

    tensors: list[Expected]
    widen: Callable[[], list[Expected]]
    is_refined: bool = False

    def refine(self) -> None:
        if not self.is_refined:
            self.tensors = self.widen()
            self.is_refined = True


@dataclass(frozen=True)
class Mismatch:
    """The first tensor that is wrong. ``place`` is where it is worst; None where shape or dtype are wrong."""

    index: int
    name: str
    summary: str
    place: tuple[int, ...] | None = None


def expect(
    subject: Subject,
    transform: Transform,
    case: Case,
    *,
    reference_transform: Transform | None = None,
    float32_attributes: bool = False,
) -> Expectation:
    """What a transform of the call has to give. Raises ReferenceRefusedError where the reference raises.

    ``float32_attributes``: the call is made by a file, which keeps float attributes in 32 bits.
    """
    apply = reference_transform or transform
    asked = with_attributes(case, in_float32) if float32_attributes else case
    try:
        own = _run(subject, apply, asked)
    except Exception as error:
        raise ReferenceRefusedError(str(error)) from error
    wide = _try(subject, apply, _cast(asked), own)
    exact = own if wide is None else wide
    eps = _resolution(asked, own)
    step = max(eps, 1e-9)

    def widen() -> list[Expected]:
        moved = [_try_with_noise(subject, apply, asked, step, seed, own) for seed in range(MOVES)] if wide else []
        near = [named for named in moved if named is not None]
        return [_expected(asked, index, own, exact, near, eps, eps / step) for index in range(len(own))]

    return Expectation([_expected(asked, index, own, exact, (), eps, 1.0) for index in range(len(own))], widen)


def mismatch(got: Named, expectation: Expectation) -> Mismatch | None:
    """The first tensor of a result that is not what it has to be; None where all are."""
    found = _first_mismatch(got, expectation.tensors)
    if found is None or found.place is None or expectation.is_refined:
        return found
    expectation.refine()
    return _first_mismatch(got, expectation.tensors)


def _first_mismatch(got: Named, expected: Sequence[Expected]) -> Mismatch | None:
    if len(got) != len(expected):
        return Mismatch(0, "", f"{len(got)} tensors came back where {len(expected)} are due")
    for index, ((_, tensor), wanted) in enumerate(zip(got, expected, strict=True)):
        found = _differs(index, tensor, wanted)
        if found is not None:
            return found
    return None


def with_attributes(case: Case, change: Callable[[float], float]) -> Case:
    """The same call with each float attribute changed."""
    changed = {
        name: (
            [change(one) if isinstance(one, float) else one for one in value]
            if isinstance(value, list)
            else change(value)
            if isinstance(value, float)
            else value
        )
        for name, value in case.attributes.items()
    }
    return replace(case, attributes=changed)


def in_float32(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32).item() if math.isfinite(value) else value


def _run(subject: Subject, transform: Transform, case: Case) -> Named:
    return [(name, tensor.detach()) for name, tensor in transform(subject, subject.reference, case)]


def _try(subject: Subject, transform: Transform, case: Case, like: Named) -> Named | None:
    """None where the reference does not take the call, or gives other sizes than ``like``."""
    try:
        found = _run(subject, transform, case)
    except Exception:
        return None
    same = len(found) == len(like) and all(a.shape == b.shape for (_, a), (_, b) in zip(found, like, strict=True))
    return found if same else None


def _cast(case: Case) -> Case:
    return case.with_inputs([t.double() if t.dtype.is_floating_point else t for t in case.tensors])


def _try_with_noise(
    subject: Subject, transform: Transform, case: Case, step: float, seed: int, like: Named
) -> Named | None:
    with Noise(step, seed):
        return _try(subject, transform, _moved(case, step, seed), like)


class Noise(TorchDispatchMode):
    """Moves each number that an operation of torch computes by a relative step, up or down at random."""

    def __init__(self, step: float, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.step = step
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function._schema.is_mutable or any(item.alias_info is not None for item in function._schema.returns):
            return result
        return self._moved(result) if isinstance(result, Tensor) else tree_map_only(Tensor, self._moved, result)

    def _moved(self, tensor: Tensor) -> Tensor:
        if tensor.dtype != torch.float64:
            return tensor
        return tensor * (1 + self.step * _steps(tuple(tensor.shape), self.generator))


def _steps(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Between -1 and 1. Steps of one length would cancel too often, as in x[0] - x[1]."""
    return torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1


def _moved(case: Case, step: float, seed: int) -> Case:
    """The call in float64 with each number of it moved by a relative step, up or down."""
    generator = torch.Generator().manual_seed(seed)

    def move(tensor: Tensor) -> Tensor:
        if not tensor.dtype.is_floating_point:
            return tensor
        return tensor.double() * (1 + step * _steps(tuple(tensor.shape), generator))

    def move_number(value: float) -> float:
        return value * (1 + step * float(_steps((), generator)))

    return with_attributes(case.with_inputs([move(tensor) for tensor in case.tensors]), move_number)


def _resolution(case: Case, own: Named) -> float:
    """The coarsest floating dtype of the call."""
    tensors = [*case.tensors, *(tensor for _, tensor in own)]
    return max((torch.finfo(t.dtype).eps for t in tensors if t.dtype.is_floating_point), default=2.0**-52)


def _expected(
    case: Case,
    index: int,
    own_named: Named,
    exact: Named,
    moved: Sequence[Named],
    eps: float,
    scale: float,
) -> Expected:
    name, own = own_named[index]
    value = exact[index][1]
    if not own.dtype.is_floating_point:
        return Expected(
            name, own, own, None, (value.to(own.dtype), *(named[index][1].to(own.dtype) for named in moved))
        )
    value = value.double()
    moves = [(named[index][1].double() - value).abs().nan_to_num(0.0, 0.0, 0.0) * scale for named in moved]
    spread = torch.stack(moves).amax(0) if moves else torch.zeros_like(value)
    size = value.abs().nan_to_num(0.0, 0.0, 0.0)
    # Whoever adds up halves does so in float: many terms must not cost more digits than that.
    summed = terms(case, own) * min(1.0, torch.finfo(torch.float32).eps / eps)
    unit = eps * size + (1 + summed) * spread + torch.finfo(own.dtype).tiny
    error = (own.double() - value).abs()
    error = torch.where(error.isfinite(), error, torch.zeros_like(error))
    ratios = (error / unit).flatten()
    usual = float(torch.quantile(ratios[:100_000], 0.9)) if moved and ratios.numel() else 0.0
    return Expected(name, value, own, unit * max(8.0, 4 * usual) + 4 * error)


def terms(case: Case, output: Tensor) -> int:
    """How many terms an element of this output may be the sum of: every size that it does not have, multiplied; or
    its own largest one, along which it may be normalised.
    """
    left = list(output.shape)
    contracted = 1
    for name in dict.fromkeys(case.sizes):
        if case.sizes[name] in left:
            left.remove(case.sizes[name])
        else:
            contracted *= max(case.sizes[name], 1)
    for tensor in case.tensors:
        contracted = max(contracted, tensor.numel() // max(output.numel(), 1))
    return int(max([contracted, *output.shape]))


def _differs(index: int, got: Tensor, wanted: Expected) -> Mismatch | None:
    own = wanted.own
    if got.shape != own.shape:
        return Mismatch(index, wanted.name, f"{wanted.name} has shape {tuple(got.shape)} instead of {tuple(own.shape)}")
    if got.dtype != own.dtype:
        return Mismatch(index, wanted.name, f"{wanted.name} is {_short(got.dtype)} instead of {_short(own.dtype)}")
    wrong = wrong_elements(got, wanted)
    if not bool(wrong.any()):
        return None
    place = _worst(got, wanted, wrong)
    shown = wanted.value[place].to(own.dtype).item() if own.dtype.is_floating_point else own[place].item()
    count = int(wrong.sum())
    others = f", one of {count} wrong elements" if count > 1 else ""
    at = f" at {list(place)}" if place else ""
    return Mismatch(
        index,
        wanted.name,
        f"{wanted.name}{at} is {number(got[place].item())} instead of {number(shown)}{others}",
        place,
    )


def wrong_elements(got: Tensor, wanted: Expected) -> Tensor:
    """Which elements are outside the tolerance. NaN is right where the reference has NaN, and nowhere else."""
    own = wanted.own
    if wanted.tolerance is None:
        right = got == own
        for other in wanted.others:
            right = right | (got == other)
        return ~right
    value = wanted.value
    given = got.double()
    like_own = (given == own.double()) | (given.isnan() & own.isnan())
    rounded = value.to(own.dtype).double()  # what is beyond the dtype's range is infinite in it
    special = ~rounded.isfinite()
    same = (given == rounded) | (given.isnan() & rounded.isnan())
    near = (given - value).abs() <= wanted.tolerance
    # An answer that overflows where the reference does not is wrong, and so is one that is finite where it is NaN.
    return ~(like_own | torch.where(special, same | (~value.isnan() & near), near))


def _worst(got: Tensor, wanted: Expected, wrong: Tensor) -> tuple[int, ...]:
    if wanted.tolerance is None:
        excess = wrong.double()
    else:
        excess = (got.double() - wanted.value).abs() / wanted.tolerance
        excess = torch.where(wrong, excess.nan_to_num(torch.inf, torch.inf), torch.full_like(excess, -1.0))
    flat = int(excess.flatten().argmax())
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), got.shape)) if got.ndim else ()


def number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
