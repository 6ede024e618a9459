"""At which sizes an operator is measured: derived from the names in its definition, or as the user says."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oneop.check.constraints import Constraints
from oneop.definition.dims import Number, Shape, Unknown
from oneop.definition.record import Definition
from oneop.errors import OneopError

LEVELS = ((2**10, 2**12), (2**16, 2**21), (2**22, 2**27))
"""For the small, the middle and the large size: the most elements of one tensor, and the largest product of all sizes,
which is what a contraction has to do."""


@dataclass(frozen=True)
class Size:
    """A size for each name of a definition, and the leading sizes for each group."""

    dims: Mapping[str, int]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        groups = [f"{name}={'x'.join(map(str, sizes)) or '-'}" for name, sizes in self.groups.items()]
        return " ".join([*groups, *(f"{name}={size}" for name, size in self.dims.items())]) or "no sizes"


Given = Mapping[str, tuple[int, ...]]
"""What one ``--size`` says: one number for a name, any number of them for a group."""


def parse_size(text: str) -> dict[str, tuple[int, ...]]:
    """Reads ``n=1024,k=64,batch=8x16``. Raises OneopError."""
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals):
            raise OneopError(f"--size {text}: `{part}` is no size. Write names and sizes, such as --size n=1024,k=64.")
        if name in found:
            raise OneopError(f"--size {text}: `{name}` is given twice. Give it once; another --size measures another.")
        found[name] = tuple(_positive(f"--size {text}", piece) for piece in value.split("x"))
    return found


def parse_sizes(text: str) -> list[int]:
    """Reads ``64,256,1024``. Raises OneopError."""
    return [_positive(f"--sizes {text}", part) for part in text.split(",")]


def _positive(option: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise OneopError(
            f"{option}: `{text.strip()}` is no size. Write whole numbers from 1, such as --size n=1024,k=64 or --sizes"
            " 64,256,1024."
        )
    return value


def require_known(definitions: Sequence[Definition], given: Iterable[Given]) -> None:
    """Raises OneopError where a name that was given is no dimension of any of the operators."""
    for name in dict.fromkeys(name for item in given for name in item):
        if any(name in (*_names(definition), *definition.batches) for definition in definitions):
            continue
        known = dict.fromkeys(
            known for definition in definitions for known in (*definition.batches, *_names(definition))
        )
        operators = ", ".join(definition.name for definition in definitions)
        if any(name in item.shape.unknown() for definition in definitions for item in definition.outputs):
            raise OneopError(
                f"{operators}: the size `{name}` is known only after the kernel ran, so it cannot be given. Leave it"
                " out of --size."
            )
        if not known:
            raise OneopError(f"{operators}: there is no dimension `{name}`; no size is free. Leave --size out.")
        example = ",".join(f"{known_name}=64" for known_name in known)
        raise OneopError(
            f"{operators}: there is no dimension `{name}`. The dimensions are {', '.join(known)}. Write for example"
            f" --size {example}."
        )


def sizes_of(
    definition: Definition,
    given: Sequence[Given] = (),
    each: Sequence[int] = (),
    constraints: Constraints | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> list[Size]:
    """The sizes to measure at.

    ``given`` fixes names, one point each; ``each`` is what the other names take in turn. Without ``each`` they take
    the middle one of three derived sizes where ``given`` fixes something, and all three in turn where it does not.
    """
    names, groups = _names(definition), definition.batches
    own = [{name: sizes for name, sizes in item.items() if name in (*names, *groups)} for item in given] or [{}]
    levels = list(each) or [_derived(definition, level) for level in LEVELS]
    found: dict[str, Size] = {}
    for fixed in own:
        middle = levels if each or not fixed else levels[1:2]
        for level in middle:
            size = _size(definition, fixed, level, constraints, attributes or {})
            found.setdefault(str(size), size)
    return list(found.values())


def _size(
    definition: Definition, fixed: Given, level: int, constraints: Constraints | None, attributes: Mapping[str, Any]
) -> Size:
    dims: dict[str, int] = {}
    for name in _names(definition):
        if name in fixed:
            if len(fixed[name]) != 1:
                raise OneopError(
                    f"{definition.name}: `{name}` is one dimension, and --size gives it"
                    f" {'x'.join(map(str, fixed[name]))}. Give one number."
                )
            dims[name] = fixed[name][0]
        else:
            dims[name] = level
            if constraints is not None:
                low, high = constraints.bounds(name, {**attributes, **dims}).integers(1, level)
                dims[name] = min(max(level, low), high)
        reason = constraints.violation(name, dims[name], {**attributes, **dims}) if constraints is not None else None
        if reason is not None:
            raise OneopError(f"{definition.name}: the size {name}={dims[name]}: {reason}. Give another with --size.")
    groups = {name: fixed.get(name, (level,)) for name in definition.batches}
    return Size(dims, groups)


def _names(definition: Definition) -> list[str]:
    """Those that the user may choose: bound by an input."""
    return list(dict.fromkeys(name for item in definition.inputs for name in item.shape.binds()))


def _derived(definition: Definition, level: tuple[int, int]) -> int:
    """One size for all names: the largest power of two with which neither limit of the level is exceeded."""
    elements, work = level
    shapes = [*(item.shape for item in definition.inputs), *(item.shape for item in definition.outputs)]
    rank = max(map(_rank, shapes), default=1) or 1
    count = len(_names(definition)) + len(definition.batches) or 1
    return int(2 ** math.floor(min(math.log2(elements) / rank, math.log2(work) / count)))


def _rank(shape: Shape) -> int:
    free = [dim for dim in shape.dims if not isinstance(dim, Number | Unknown)]
    return len(free) + (shape.batch is not None)
