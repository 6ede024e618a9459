"""The calls that are measured: inputs of given sizes and dtypes, made from a definition and its constraints."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from oneop.bench.memory import free_memory, shown
from oneop.bench.sizes import Size
from oneop.check.cases import Case, Structure
from oneop.check.constraints import Constraints
from oneop.check.values import Made, NoValueError, make
from oneop.definition.attributes import REQUIRED
from oneop.definition.binding import bind
from oneop.definition.dims import Anything, DimError, Name, evaluate
from oneop.definition.dtypes import BY_NAME, DType
from oneop.definition.record import Attribute, Definition, Input
from oneop.errors import CallError, OneopError
from oneop.targets.pytorch.inputs import check_attribute

if TYPE_CHECKING:
    from oneop.operator import Operator

VARIADIC = 3
"""How many tensors a variadic input gets."""

PREFERRED = ("float32", "int64")


@dataclass(frozen=True)
class Plan:
    """What all calls of one operator have in common. ``dtypes`` has one for each of ``definition.elements``."""

    operator: "Operator"
    constraints: Constraints
    dtypes: tuple[DType, ...]
    attributes: Mapping[str, Any]
    absent: frozenset[str]
    notes: tuple[str, ...] = ()

    @property
    def definition(self) -> Definition:
        return self.operator.definition

    @property
    def dtype(self) -> DType:
        """The one that the machine's arithmetic is measured in: the first floating one."""
        return next((dtype for dtype in self.dtypes if dtype.is_floating), self.dtypes[0])


def plan_of(
    operator: "Operator",
    constraints: Constraints,
    dtype: str | None = None,
    attributes: Mapping[str, str] | None = None,
    absent: Sequence[str] = (),
    examples: Mapping[str, Any] | None = None,
) -> Plan:
    """Settles dtypes and attributes. ``attributes`` are as the user wrote them, ``examples`` from the definition.

    Raises OneopError where something does not fit the definition.
    """
    definition = operator.definition
    chosen = tuple(_dtype(definition, position, dtype) for position in range(len(definition.elements)))
    if dtype is not None and all(item.name != dtype for item in chosen):
        variables = {item.name: ", ".join(one.name for one in item.dtypes) for item in definition.elements}
        raise OneopError(
            f"{definition.name}: no input can be {dtype}. Choose a --dtype that its annotations admit:"
            f" {'; '.join(f'{name} is {names}' for name, names in variables.items())}."
        )
    values, notes = _attributes(definition, attributes or {}, examples or {})
    optional = [item.name for item in definition.inputs if item.arity == "optional"]
    return Plan(operator, constraints, chosen, values, frozenset(absent) & frozenset(optional), notes)


def require_words(definitions: Sequence[Definition], attributes: Mapping[str, str], absent: Sequence[str]) -> None:
    """Raises OneopError for an attribute or an optional input that none of the operators has."""
    operators = ", ".join(definition.name for definition in definitions)
    known = dict.fromkeys(item.name for definition in definitions for item in definition.attributes)
    for name in attributes:
        if name not in known:
            has = f"The attributes are {', '.join(known)}." if known else "There are no attributes; leave --set out."
            raise OneopError(f"{operators}: there is no attribute `{name}` to set. {has}")
    optional = dict.fromkeys(
        item.name for definition in definitions for item in definition.inputs if item.arity == "optional"
    )
    for name in absent:
        if name not in optional:
            has = f"Those are {', '.join(optional)}." if optional else "There are none; leave --without out."
            raise OneopError(f"{operators}: `{name}` is no optional input. {has}")


def require_dtype(dtype: str | None) -> None:
    if dtype is not None and dtype not in BY_NAME:
        raise OneopError(f"--dtype {dtype} is not known. Choose one of {', '.join(BY_NAME)}.")


def _dtype(definition: Definition, position: int, wanted: str | None) -> DType:
    dtypes = definition.elements[position].dtypes
    names = [dtype.name for dtype in dtypes]
    found = next((name for name in (wanted, *PREFERRED) if name in names), names[0])
    return BY_NAME[found]


def _attributes(
    definition: Definition, given: Mapping[str, str], examples: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    values: dict[str, Any] = {}
    notes = []
    for item in definition.attributes:
        if item.name in given:
            value = check_attribute(definition, item.name, _parsed(definition, item, given[item.name]))
        elif item.name in examples:
            value = examples[item.name]
        elif item.default is not REQUIRED:
            value = list(item.default) if isinstance(item.default, tuple) else item.default
        else:
            raise OneopError(
                f"{definition.name}: attribute `{item.name}` ({item.kind.annotation}) has no default. Give it a value:"
                f" --set {item.name}={_EXAMPLES[item.kind.name]}."
            )
        values[item.name] = _rounded(value) if item.kind.element is float else value
        if values[item.name] != value and value == value:
            notes.append(
                f"{item.name} is {values[item.name]!r}, not {value!r}: ONNX keeps floating attributes in 32 bits, and"
                " every column gets the same."
            )
    return values, tuple(notes)


_EXAMPLES = {
    "float": "0.5",
    "int": "2",
    "bool": "true",
    "str": "text",
    "floats": "0.5,0.25",
    "ints": "1,2",
    "strings": "a,b",
}


def _parsed(definition: Definition, item: Attribute, text: str) -> Any:
    """The value of ``--set name=text`` as the attribute's kind reads it."""
    if item.optional and text == "None":
        return None
    element = item.kind.element
    try:
        if not item.kind.is_list:
            return _scalar(element, text)
        inner = text.strip().removeprefix("[").removesuffix("]")
        return [_scalar(element, part.strip()) for part in inner.split(",")] if inner.strip() else []
    except ValueError:
        raise OneopError(
            f"{definition.name}: --set {item.name}={text} does not read as {item.kind.annotation}. Write for example"
            f" --set {item.name}={_EXAMPLES[item.kind.name]}."
        ) from None


def _scalar(element: type, text: str) -> Any:
    if element is str:
        return text
    if element is bool:
        if text.lower() not in _BOOLS:
            raise ValueError(text)
        return _BOOLS[text.lower()]
    return element(text)


_BOOLS = {"true": True, "false": False, "1": True, "0": False}


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(np.float32(value)) if isinstance(value, float) else value


def check_call(plan: Plan, size: Size) -> None:
    """Raises OneopError where the sizes do not go together or do not fit into memory."""
    shapes = {item.name: _shapes(plan, item, size) for item in plan.definition.inputs}
    _require_memory(plan, size, shapes, _output_shapes(plan, shapes))


def make_call(plan: Plan, size: Size, seed: int = 0) -> Case:
    """The inputs of one call, for sizes that ``check_call`` takes. The same seed gives the same values."""
    definition = plan.definition
    shapes = {item.name: _shapes(plan, item, size) for item in definition.inputs}
    scope = {**plan.attributes, **size.dims}
    below = min((one for found in shapes.values() for shape in found for one in shape), default=1)
    inputs = [
        _input(plan, item, shapes[item.name], scope, below, seed + 17 * place)
        for place, item in enumerate(definition.inputs)
    ]
    present = frozenset(item.name for item in definition.inputs if item.arity == "optional") - plan.absent
    structure = Structure(plan.dtypes, present)
    return Case(definition, structure, tuple(inputs), dict(plan.attributes), dict(size.dims), origin="bench")


def _shapes(plan: Plan, item: Input, size: Size) -> list[tuple[int, ...]]:
    if item.name in plan.absent:
        return []
    leading = size.groups[item.shape.batch] if item.shape.batch is not None else ()
    free = max(size.dims.values(), default=1)
    dims = []
    for dim in item.shape.dims:
        if isinstance(dim, Name):
            dims.append(size.dims[dim.name])
        elif isinstance(dim, Anything):
            dims.append(free)
        else:
            try:
                dims.append(evaluate(dim, {**plan.attributes, **size.dims}))  # type: ignore[arg-type]
            except (DimError, TypeError) as error:
                raise OneopError(
                    f'{plan.definition.name}: at {size}, input `{item.name}` of shape "{item.shape}" has no size:'
                    f" {error}. Give other sizes with --size, or attributes with --set."
                ) from None
    if any(one < 0 for one in dims):
        raise OneopError(
            f'{plan.definition.name}: at {size}, input `{item.name}` of shape "{item.shape}" would have a negative size'
            f" {tuple(dims)}. Give other sizes with --size, or attributes with --set."
        )
    return [(*leading, *dims)] * (VARIADIC if item.arity == "variadic" else 1)


def _output_shapes(plan: Plan, shapes: Mapping[str, Sequence[tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """A size that only the kernel knows counts as none."""
    try:
        binding = bind(plan.definition, shapes, plan.attributes)
        found = [shape for item in plan.definition.outputs for shape in binding.output_shapes(item)]
    except CallError as error:
        raise OneopError(f"{error} (Here: other sizes with --size, or attributes with --set.)") from None
    return [tuple(0 if one is None else one for one in shape) for shape in found]


def _require_memory(
    plan: Plan, size: Size, shapes: Mapping[str, Sequence[tuple[int, ...]]], outputs: Sequence[tuple[int, ...]]
) -> None:
    """Inputs, outputs and gradients once each in their dtype and once in float64, for the comparison."""
    elements = sum(math.prod(shape) for found in shapes.values() for shape in found)
    elements += sum(math.prod(shape) for shape in outputs)
    needed = 2 * elements * (plan.dtype.dlpack[1] // 8 + 8)
    free = free_memory()
    if free is not None and needed > free:
        raise OneopError(
            f"{plan.definition.name}: {size} needs about {shown(needed)} (inputs, outputs and gradients, and all of"
            f" them in float64 to compare with), and this machine has {shown(free)} free. Give smaller sizes with"
            " --size."
        )


def _input(
    plan: Plan, item: Input, shapes: Sequence[tuple[int, ...]], scope: Mapping[str, Any], below: int, seed: int
) -> Any:
    dtype = plan.dtypes[plan.definition.elements.index(item.element)]
    bounds = plan.constraints.bounds(item.name, scope)
    tensors: list[Tensor] = []
    for index, shape in enumerate(shapes):
        try:
            made = Made("contiguous", "random", seed + index, bounds, below)
            tensors.append(make(shape, getattr(torch, dtype.name), made))
        except NoValueError:
            raise OneopError(
                f"{plan.definition.name}: at {dict(scope)}, no value of input `{item.name}` satisfies its constraint"
                f' "{plan.constraints.found[item.name].text}". Give other sizes with --size.'
            ) from None
    if item.arity == "variadic":
        return tensors
    return tensors[0] if tensors else None
