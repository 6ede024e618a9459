"""The operator under check: its reference as a plain function, its results with their names, the calls it admits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oneop.check.cases import Case
from oneop.check.constraints import Constraints
from oneop.check.drawing import Space
from oneop.definition.dtypes import BY_NAME, DType
from oneop.definition.record import NEEDS, Definition, Output

if TYPE_CHECKING:
    from oneop.operator import Operator

Call = Callable[[Sequence[Any], Mapping[str, Any]], Any]
"""Inputs (one value each) and attributes; gives what the operator returns."""

Named = list[tuple[str, Tensor]]
"""The tensors of a result in order, each with its name."""

_PLAIN = ("float32", "float64", "int32", "int64", "bool")
"""Where a definition admits many dtypes and nothing has kernels, these are looked at."""


@dataclass(frozen=True)
class Subject:
    """One operator, and what is known of it. ``space`` has every dtype that is looked at, float32 first."""

    operator: "Operator"
    constraints: Constraints
    space: Space
    examples: tuple[Case, ...] = field(default=())

    @property
    def definition(self) -> Definition:
        return self.operator.definition

    @property
    def has_reference(self) -> bool:
        return not self.definition.native_only

    @property
    def floating_inputs(self) -> bool:
        return any(item.element.may_be_floating for item in self.definition.inputs)

    @property
    def floating_outputs(self) -> bool:
        return any(item.element.may_be_floating for item in self.definition.outputs)

    @property
    def is_differentiable(self) -> bool:
        return self.floating_inputs and self.floating_outputs

    @property
    def admits_float64(self) -> bool:
        """Whether every floating dtype variable may be float64: finite differences need its digits."""
        floating = [element for element in self.definition.elements if element.may_be_floating]
        return all(BY_NAME["float64"] in element.dtypes for element in floating)

    @property
    def unknown_sizes(self) -> bool:
        return any(list(item.shape.unknown()) for item in self.definition.outputs)

    def in_float64(self) -> Space:
        """The calls whose floating tensors are float64."""
        wide = [
            combination
            for combination in _combinations(self.definition, ("float64", *_PLAIN), self.operator)
            if all(dtype.name == "float64" for dtype in combination if dtype.is_floating)
        ]
        return Space(self.definition, self.constraints, tuple(wide))

    def reference(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """The reference as it is written, without the operator's checks: its inputs may be wider than it admits."""
        result = self.operator.call_reference(*inputs, **attributes)
        if not self.definition.is_gradient:
            return result
        found = result if isinstance(result, tuple | list) else (result,)
        values = dict(zip(self.definition.differentiates, found, strict=True))
        sources = {item.name: value for item, value in zip(self.definition.inputs, inputs, strict=True)}
        return tuple(
            _zeros_for_none(values[item.mirrors or ""], sources[item.mirrors or ""]) for item in self.definition.outputs
        )

    def named(self, result: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Named:
        """The tensors of a result. Of a gradient operator's, those that were asked for."""
        outputs = self.definition.outputs
        values = [result] if isinstance(result, Tensor) or len(outputs) == 1 else list(result)
        if len(outputs) == 1 and isinstance(values[0], tuple):
            values = list(values[0])
        named: Named = []
        for item, value in zip(outputs, values, strict=True):
            if item.mirrors is not None and not self._asked_for(item, inputs, attributes):
                continue
            if isinstance(value, list | tuple):
                named.extend((f"{item.name}[{index}]", tensor) for index, tensor in enumerate(value))
            else:
                named.append((item.name, value))
        return named

    def _asked_for(self, item: Output, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> bool:
        position = self.definition.differentiates.index(item.mirrors or "")
        source = dict(zip((given.name for given in self.definition.inputs), inputs, strict=True))[item.mirrors or ""]
        return source is not None and bool(attributes.get(NEEDS, -1) >> position & 1)


def subject_of(operator: "Operator") -> Subject:
    """Raises DefinitionError where a constraint or an example does not fit the operator."""
    from oneop.check.examples import cases_of, constraints_of

    definition = operator.definition
    constraints = constraints_of(operator)
    kernels = (
        {dtype.name for combination in operator.kernel_spec().combinations() for dtype in combination}
        if operator.has_kernels
        else set()
    )
    names = [*_PLAIN, *(name for name in BY_NAME if name in kernels and name not in _PLAIN)]
    space = Space(definition, constraints, _combinations(definition, names, operator))
    return Subject(operator, constraints, space, tuple(cases_of(operator, constraints)))


def inputs_differ(before: Sequence[Tensor], after: Sequence[Tensor]) -> int | None:
    """The first tensor whose bits changed; None where none did."""
    for index, (left, right) in enumerate(zip(before, after, strict=True)):
        if not same_bits(left, right):
            return index
    return None


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors hold the same numbers, NaN for NaN and zero's sign included."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if not left.dtype.is_floating_point:
        return bool(torch.equal(left, right))
    raw = {2: torch.int16, 4: torch.int32, 8: torch.int64}[left.element_size()]
    nan = left.isnan() & right.isnan()
    return bool(((left.contiguous().view(raw) == right.contiguous().view(raw)) | nan).all())


def _combinations(definition: Definition, names: Sequence[str], operator: "Operator") -> tuple[tuple[DType, ...], ...]:
    """The dtypes of calls: float32 first, and each that has a kernel. A call with 3 dtype variables has no more than
    that: the combinations of many are cut short.
    """
    choices = []
    for element in definition.elements:
        chosen = [BY_NAME[name] for name in names if BY_NAME[name] in element.dtypes]
        choices.append(chosen or list(element.dtypes[:2]))
    return tuple(dict.fromkeys(product(*choices)))[:24]


def _zeros_for_none(value: Any, source: Any) -> Any:
    if source is None:
        return None
    if isinstance(source, list | tuple):
        values = [None] * len(source) if value is None else value
        return [_zeros_for_none(one, tensor) for one, tensor in zip(values, source, strict=True)]
    return torch.zeros_like(source) if value is None else value
