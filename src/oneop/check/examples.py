"""The user's own examples and constraints of an operator, read and checked."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from oneop import registry
from oneop.check.cases import Case, Structure, flat
from oneop.check.constraints import Constraints
from oneop.definition.binding import bind
from oneop.definition.dtypes import BY_NAME
from oneop.errors import DefinitionError, OneopError

if TYPE_CHECKING:
    from oneop.operator import Operator


def constraints_of(operator: "Operator") -> Constraints:
    """An operator's constraints; those of the operator that it differentiates, where it is a gradient."""
    constraints = Constraints(operator.definition)
    constraints.add(operator.constraints)
    if operator.definition.is_gradient:
        for other in registry.operators().values():
            if other.gradient_operator is operator:
                names = {*operator.definition.parameters(), *operator.definition.dims}
                constraints.add({name: text for name, text in other.constraints.items() if name in names})
    return constraints


def cases_of(operator: "Operator", constraints: Constraints) -> Iterator[Case]:
    """The calls of the operator's examples. Raises DefinitionError where one does not fit."""
    for function in operator.examples:
        name = getattr(function, "__name__", "an example")
        try:
            returned = function()
        except Exception as error:
            raise DefinitionError(
                f"{operator.definition.name}: the example `{name}` raised {type(error).__name__}: {error}. Correct the"
                " example."
            ) from error
        yield _case(operator, constraints, name, returned)


def inputs_and_attributes(operator: "Operator", returned: Any) -> tuple[list[Any], dict[str, Any]]:
    """One value an input, and every attribute, of what an example returns. Raises CallError where it is no call."""
    values = list(returned) if isinstance(returned, tuple) else [returned]
    given: dict[str, Any] = dict(values.pop()) if values and isinstance(values[-1], Mapping) else {}
    return operator._arguments(values, given)


def _case(operator: "Operator", constraints: Constraints, name: str, returned: Any) -> Case:
    where = f"{operator.definition.name}: the example `{name}`"
    try:
        inputs, attributes = inputs_and_attributes(operator, returned)
    except OneopError as error:
        raise DefinitionError(f"{where} is not a call of the operator: {error} {_FORM}") from None
    return case_of(operator, constraints, inputs, attributes, where=where, origin=f"example `{name}`")


_FORM = "An example returns the inputs in order, and a dict of attributes behind them."


def case_of(
    operator: "Operator",
    constraints: Constraints,
    inputs: Sequence[Any],
    attributes: dict[str, Any],
    *,
    where: str,
    origin: str,
) -> Case:
    """A call that somebody wrote. Raises DefinitionError where it does not fit the definition or the constraints."""
    definition = operator.definition
    try:
        tensors = {item.name: flat([value]) for item, value in zip(definition.inputs, inputs, strict=True)}
        shapes = {label: [tuple(tensor.shape) for tensor in found] for label, found in tensors.items()}
        binding = bind(definition, shapes, attributes)
    except OneopError as error:
        raise DefinitionError(f"{where} is not a call of the operator: {error} {_FORM}") from None
    scope = {**attributes, **binding.dims}
    for parameter, value in [*zip((i.name for i in definition.inputs), inputs, strict=True), *scope.items()]:
        broken = constraints.violation(parameter, value, scope)
        if broken is not None:
            raise DefinitionError(
                f"{where} is outside the operator's own constraints: `{parameter}`: {broken}. Correct the example or"
                " the constraint."
            )
    dtypes = []
    for element in definition.elements:
        found = [tensor for item in definition.inputs if item.element is element for tensor in tensors[item.name]]
        dtypes.append(BY_NAME[str(found[0].dtype).removeprefix("torch.")] if found else element.dtypes[0])
    structure = Structure(
        tuple(dtypes),
        frozenset(i.name for i in definition.inputs if i.arity == "optional" and tensors[i.name]),
        tuple((i.name, len(tensors[i.name])) for i in definition.inputs if i.arity == "variadic"),
        tuple((group, len(sizes)) for group, sizes in binding.batches.items()),
        tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in attributes.items()),
    )
    detached = tuple(_detached(value) for value in inputs)
    return Case(definition, structure, detached, attributes, dict(binding.dims), origin=origin)


def _detached(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_detached(one) for one in value]
    return value.detach() if isinstance(value, Tensor) else value


def names_of(operator: "Operator") -> list[str]:
    """The origins of the examples' cases, in order."""
    return [f"example `{getattr(function, '__name__', 'an example')}`" for function in operator.examples]
