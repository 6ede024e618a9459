"""Example inputs for tracing a reference: sizes that fit the definition, as different from each other as they may
be.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from oneop.definition.dims import Anything, Binary, Dim, DimError, Name, Number, evaluate, names
from oneop.definition.dims import Call as Function
from oneop.definition.record import Input
from oneop.targets.onnx.calls import Call, Tensor

_SMALLEST = 3
"""torch.export treats sizes 0 and 1 as special; 2 is what an author's constant is likely to be."""


_LARGE = 64
"""Attributes beyond this are no sizes, or of tensors that an example should not have."""
_NAMELESS = "_"
"""What stands for all dimensions without a name where sizes are changed."""
_BEHIND = 8
"""How many sizes from a lower bound on are tried."""


@dataclass(frozen=True)
class Sizes:
    """A size for each name of the definition, the leading sizes for each batch, and one for what has no name."""

    dims: Mapping[str, int]
    batches: Mapping[str, tuple[int, ...]]
    nameless: int = _SMALLEST


def samples(call: Call) -> Iterator[list[tuple[int, ...]]]:
    """Shapes for the tensors of a call: small and all different first, then primes (a multiple of no attribute), then
    nearer and nearer to those of the call. The last has every size that the model fixes.
    """
    known = _known(call)
    order = sorted(known.dims, key=lambda name: (known.dims[name] is None, known.dims[name]))
    distinct = {name: _SMALLEST + position for position, name in enumerate(order)}
    largest = max([size for size in known.dims.values() if size is not None], default=_SMALLEST)
    primes = dict(zip(order, _primes_above(2 * _largest_integer(call)), strict=False))
    for dims in (distinct, primes, _filled(known.dims, largest + 1, 1), _filled(known.dims, 2 * largest, largest)):
        batches = {
            name: tuple(_SMALLEST + len(order) + index for index in range(len(sizes)))
            for name, sizes in known.batches.items()
        }
        shapes = shapes_of(call, Sizes(dims, batches))
        if shapes is not None:
            yield shapes
    exact = Sizes(
        _filled(known.dims, largest, 0),
        {name: tuple(_SMALLEST if size is None else size for size in sizes) for name, sizes in known.batches.items()},
    )
    shapes = shapes_of(call, exact, exact=True)
    if shapes is not None:
        yield shapes


def _largest_integer(call: Call) -> int:
    flat = [
        one for value in call.attributes.values() for one in (value if isinstance(value, list | tuple) else [value])
    ]
    found = max((abs(one) for one in flat if isinstance(one, int)), default=0)
    return min(found, _LARGE)


def _primes_above(bound: int) -> Iterator[int]:
    for number in itertools.count(max(bound + 1, _SMALLEST + 2)):
        if all(number % divisor for divisor in range(2, math.isqrt(number) + 1)):
            yield number


def _filled(known: Mapping[str, int | None], start: int, step: int) -> dict[str, int]:
    """The known sizes, and one after the other for the free ones."""
    free = [name for name, size in known.items() if size is None]
    fill = {name: start + step * position for position, name in enumerate(free)}
    return {name: fill[name] if size is None else size for name, size in known.items()}


@dataclass(frozen=True)
class _Known:
    dims: dict[str, int | None]
    batches: dict[str, tuple[int | None, ...]]


def _known(call: Call) -> _Known:
    """What the model says of each name: a size, or None where it is free."""
    found = _Known({}, {})
    for item, _, tensor in labelled(call):
        leading = len(tensor.sizes) - len(item.shape.dims)
        if item.shape.batch is not None:
            found.batches.setdefault(item.shape.batch, tensor.sizes[:leading])
        for dim, size in zip(item.shape.dims, tensor.sizes[leading:], strict=True):
            if isinstance(dim, Name) and found.dims.get(dim.name) is None:
                found.dims[dim.name] = size
    return found


def labelled(call: Call) -> Iterator[tuple[Input, str, Tensor]]:
    """The tensors of a call, with their input and the name of the function's formal input."""
    by_label = dict(call.tensors())
    for item, tensors in zip(call.definition.inputs, call.inputs, strict=True):
        for index in range(len(tensors)):
            label = f"{item.name}_{index}" if item.arity == "variadic" else item.name
            yield item, label, by_label[label]


def shapes_of(call: Call, sizes: Sizes, exact: bool = False) -> list[tuple[int, ...]] | None:
    """The shape of each tensor under these sizes, or None where the definition admits none.

    ``exact`` gives nameless dimensions the size that the model fixes.
    """
    scope = {**call.attributes, **sizes.dims}
    shapes: list[tuple[int, ...]] = []
    for item, _, tensor in labelled(call):
        leading = sizes.batches[item.shape.batch] if item.shape.batch is not None else ()
        own = tensor.sizes[len(leading) :]
        try:
            trailing = [
                _size(dim, size if exact and size is not None else sizes.nameless, scope)
                for dim, size in zip(item.shape.dims, own, strict=True)
            ]
        except DimError:
            return None
        if min(trailing, default=0) < 0:
            return None
        shapes.append((*leading, *trailing))
    return shapes


def _size(dim: Dim, nameless: int, scope: Mapping[str, Any]) -> int:
    return int(evaluate(dim, scope)) if isinstance(dim, Number | Name | Binary | Function) else nameless


def variants(call: Call, shapes: Sequence[tuple[int, ...]], static: bool) -> Iterator[list[tuple[int, ...]]]:
    """Shapes like these, at the sizes that torch.export takes for special: 0, 1, and equal ones. Fixed sizes stay."""
    known, base = _known(call), _sizes(call, shapes)
    names = [name for name in base.dims if not static or known.dims[name] is None]
    groups = [name for name in base.batches if not static or None in known.batches[name]]
    every = [*names, *groups, _NAMELESS]
    changes: list[dict[str, int]] = [{name: size} for size in (1, 0) for name in every]
    changes.append(dict.fromkeys(every, _SMALLEST))
    yield from _changed(call, base, changes, exact=static)


def below(call: Call, shapes: Sequence[tuple[int, ...]], bound: int) -> Iterator[list[tuple[int, ...]]]:
    """Shapes like these, with each size in turn below a bound, and some at it and behind."""
    base = _sizes(call, shapes)
    every = [*base.dims, *base.batches, _NAMELESS]
    changes = [{name: size} for name in every for size in range(bound + _BEHIND)]
    yield from _changed(call, base, changes, exact=False)


def _changed(
    call: Call, base: Sizes, changes: Sequence[Mapping[str, int]], exact: bool
) -> Iterator[list[tuple[int, ...]]]:
    for change in changes:
        dims = {name: change.get(name, size) for name, size in base.dims.items()}
        batches = {
            name: (change[name],) * len(sizes) if name in change else sizes for name, sizes in base.batches.items()
        }
        found = shapes_of(call, Sizes(dims, batches, change.get(_NAMELESS, _SMALLEST)), exact=exact)
        if found is not None:
            yield found


def _sizes(call: Call, shapes: Sequence[tuple[int, ...]]) -> Sizes:
    """The sizes that gave these shapes."""
    dims: dict[str, int] = {}
    batches: dict[str, tuple[int, ...]] = {}
    for (item, _, _), shape in zip(labelled(call), shapes, strict=True):
        leading = len(shape) - len(item.shape.dims)
        if item.shape.batch is not None:
            batches.setdefault(item.shape.batch, shape[:leading])
        for dim, size in zip(item.shape.dims, shape[leading:], strict=True):
            if isinstance(dim, Name):
                dims.setdefault(dim.name, size)
    return Sizes(dims, batches)


def tensors(call: Call, shapes: Sequence[tuple[int, ...]], seed: int = 0) -> list[torch.Tensor]:
    """The same numbers for the same seed. Integers are 0 and 1, which are indices more often than others are."""
    generator = torch.Generator().manual_seed(seed)
    return [
        _tensor(getattr(torch, tensor.dtype), shape, generator)
        for (_, _, tensor), shape in zip(labelled(call), shapes, strict=True)
    ]


def _tensor(dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.rand(shape, generator=generator).add_(0.1).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def dynamic_dims(call: Call, shapes: Sequence[tuple[int, ...]], static: bool) -> list[dict[int, Any]]:
    """What torch.export may not take for constant: each name is one Dim wherever it stands.

    ``static`` keeps the sizes that the model fixes as they are.
    """
    shared: dict[str, Any] = {}
    found: list[dict[int, Any]] = []
    for position, (item, _, tensor) in enumerate(labelled(call)):
        leading = len(tensor.sizes) - len(item.shape.dims)
        dims: dict[int, Any] = {}
        for axis in range(len(shapes[position])):
            if static and tensor.sizes[axis] is not None:
                continue
            if axis < leading:
                name = f"batch_{item.shape.batch}_{axis}"
                dims[axis] = shared.setdefault(name, torch.export.Dim(name))
                continue
            dim = item.shape.dims[axis - leading]
            if isinstance(dim, Name):
                name = f"dim_{dim.name}"
                dims[axis] = shared.setdefault(name, torch.export.Dim(name))
            elif isinstance(dim, Anything):
                name = f"any_{position}_{axis}"
                dims[axis] = torch.export.Dim(name)
            elif not isinstance(dim, Number) and any(name not in call.attributes for name in names(dim)):  # type: ignore[arg-type]
                dims[axis] = torch.export.Dim.AUTO
        found.append(dims)
    return found
