"""Checks a call against the definition: kinds, dtypes, devices, sizes, choices. runtime.cpp has the same checks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from oneop.definition.binding import Arithmetic, Binding, bind
from oneop.definition.record import Definition, Input
from oneop.definition.signature import attribute_value
from oneop.errors import CallError
from oneop.targets.pytorch.schema import has_minus_zero, schema_has_default


def check_inputs(definition: Definition, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Binding:
    """Checks the tensors of a call, given one an input (None, a tensor or a list), and returns the bound sizes."""
    tensors = {
        item.name: tensors_of(definition, item, value) for item, value in zip(definition.inputs, inputs, strict=True)
    }
    _check_dtypes(definition, tensors)
    _check_devices(definition, tensors)
    _check_choices(definition, attributes)
    shapes = {name: [tensor.shape for tensor in found] for name, found in tensors.items()}
    return bind(definition, shapes, attributes, SYMBOLIC)


def tensors_of(definition: Definition, item: Input, value: Any) -> list[Tensor]:
    """The tensors of one input: none, one, or those of a list."""
    if (
        item.arity == "variadic"
        and isinstance(value, list | tuple)
        and all(isinstance(entry, Tensor) for entry in value)
    ):
        if not value:
            raise CallError(f"{definition.name}: input `{item.name}` is an empty list. Pass at least one tensor.")
        return list(value)
    if item.arity == "optional" and value is None:
        return []
    if item.arity != "variadic" and isinstance(value, Tensor):
        return [value]
    wanted = {"required": "a tensor", "optional": "a tensor or None", "variadic": "a list of tensors"}[item.arity]
    raise CallError(f"{definition.name}: input `{item.name}` is {kind_of(value)}, not {wanted}. Pass {wanted}.")


def kind_of(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _check_dtypes(definition: Definition, tensors: Mapping[str, Sequence[Tensor]]) -> None:
    bound: dict[str, tuple[torch.dtype, str]] = {}
    for item in definition.inputs:
        admitted = [getattr(torch, dtype.name) for dtype in item.element.dtypes]
        for label, tensor in labelled(item, tensors[item.name]):
            if tensor.dtype not in admitted:
                raise CallError(
                    f"{definition.name}: input `{label}` is {short(tensor.dtype)}; its definition is"
                    f" {item.element.name}: {', '.join(dtype.name for dtype in item.element.dtypes)}. Convert it with"
                    " `.to(...)`."
                )
            dtype, source = bound.setdefault(item.element.name, (tensor.dtype, label))
            if tensor.dtype != dtype:
                raise CallError(
                    f"{definition.name}: input `{label}` is {short(tensor.dtype)}, and {item.element.name} is "
                    f"{short(dtype)} here, from `{source}`. Convert one of them with `.to(...)`."
                )


def _check_devices(definition: Definition, tensors: Mapping[str, Sequence[Tensor]]) -> None:
    first: tuple[torch.device, str] | None = None
    for item in definition.inputs:
        for label, tensor in labelled(item, tensors[item.name]):
            first = first or (tensor.device, label)
            if tensor.device != first[0]:
                raise CallError(
                    f"{definition.name}: input `{label}` is on {tensor.device}, and `{first[1]}` is on {first[0]}. "
                    "Move one of them with `.to(...)`."
                )


def labelled(item: Input, tensors: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    """The tensors of an input with what messages call them."""
    if item.arity != "variadic":
        return [(item.name, tensor) for tensor in tensors]
    return [(f"{item.name}[{index}]", tensor) for index, tensor in enumerate(tensors)]


def _check_choices(definition: Definition, attributes: Mapping[str, Any]) -> None:
    for item in definition.attributes:
        if item.choices is not None and attributes[item.name] is not None and attributes[item.name] not in item.choices:
            raise CallError(choice_message(definition, item.name, attributes[item.name]))


def choice_message(definition: Definition, name: str, value: Any) -> str:
    choices = definition.attribute(name).choices or ()
    return (
        f"{definition.name}: attribute `{name}` is {value!r}, not one of {', '.join(map(repr, choices))}. Pass one of"
        " these."
    )


def check_attribute(definition: Definition, name: str, value: Any) -> Any:
    """The value of an attribute as torch's dispatcher takes it. Symbolic numbers pass through."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    try:
        checked = attribute_value(definition.attribute(name), value)
    except ValueError as error:
        if "not one of" in str(error):
            raise CallError(choice_message(definition, name, value)) from None
        wanted = definition.attribute(name).kind.annotation
        hint = (
            f" If it is a value of your data, pass it as a number: `{name}=float(...)`."
            if isinstance(value, Tensor)
            else ""
        )
        raise CallError(
            f"{definition.name}: attribute `{name}` {error}. Pass"
            f" {wanted}{' or None' if definition.attribute(name).optional else ''}.{hint}"
        ) from None
    _refuse_minus_zero(definition, name, checked)
    return list(checked) if isinstance(checked, tuple) else checked


def _refuse_minus_zero(definition: Definition, name: str, value: Any) -> None:
    """torch leaves an argument out that equals the schema's default, and -0.0 equals 0.0."""
    item = definition.attribute(name)
    if has_minus_zero(value) and schema_has_default(item) and value == item.default:
        raise CallError(
            f"{definition.name}: attribute `{name}` is {value!r}, and PyTorch would pass its default {item.default!r},"
            " which compares equal. Give the attribute another default, or none."
        )


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _require_equal(left: Any, right: Any, message: Callable[[], str]) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left != right:
            raise CallError(message())
    else:
        torch._check(left == right, message)


def _require_not_negative(value: Any, message: Callable[[], str]) -> None:
    if isinstance(value, int):
        if value < 0:
            raise CallError(message())
    else:
        torch._check(value >= 0, message)


SYMBOLIC = Arithmetic(_require_equal, _require_not_negative, torch.sym_min, torch.sym_max)
"""Comparisons that keep a symbolic size symbolic, and plain ones for plain sizes."""
