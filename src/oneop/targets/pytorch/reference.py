"""Runs an operator's reference as the operator: with its checks, its output types, and outputs that alias no input."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oneop.definition.binding import shown
from oneop.definition.dims import Unknown
from oneop.definition.record import NEEDS, Definition, Output
from oneop.errors import CallError
from oneop.targets.pytorch.inputs import check_inputs, labelled, short

if TYPE_CHECKING:
    from oneop.operator import Operator

Values = tuple[Any, ...]
"""One value an output: a tensor, or a list of tensors where a gradient operator mirrors a variadic input."""


def run_reference(operator: "Operator", inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """What the operator gives for these inputs, computed by its reference: a value, or a tuple of several."""
    definition = operator.definition
    binding = check_inputs(definition, inputs, attributes)
    if definition.native_only:
        raise CallError(
            f"{definition.name}: there is no kernel for this call ({_described(definition, inputs)}), and"
            " native_only=True says that there is no reference. Convert the inputs to a dtype and device that have a"
            " kernel, or write a reference."
        )
    shapes = [] if definition.is_gradient else [binding.output_shapes(item)[0] for item in definition.outputs]
    versions = _versions(definition, inputs)
    returned = operator.call_reference(*inputs, **attributes)
    _require_unchanged(definition, versions)
    if definition.is_gradient:
        values = _gradients(definition, inputs, attributes, returned)
    else:
        values = _values(definition, shapes, inputs, returned)
    fresh = tuple(_fresh(value, inputs) for value in values)
    return fresh[0] if len(fresh) == 1 else fresh


def _described(definition: Definition, inputs: Sequence[Any]) -> str:
    given = [
        (item.name, value) for item, value in zip(definition.inputs, inputs, strict=True) if isinstance(value, Tensor)
    ]
    return ", ".join(f"{name}: {short(value.dtype)} on {value.device}" for name, value in given)


def _values(definition: Definition, shapes: Sequence[tuple[Any, ...]], inputs: Sequence[Any], returned: Any) -> Values:
    values = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    if len(values) != len(definition.outputs):
        raise CallError(
            f"{definition.name}: the reference returned {len(values)} values; the definition has"
            f" {len(definition.outputs)} outputs ({', '.join(item.name for item in definition.outputs)}). Return one"
            " tensor for each."
        )
    unknown: dict[str, tuple[int, str]] = {}
    for item, shape, value in zip(definition.outputs, shapes, values, strict=True):
        if not isinstance(value, Tensor):
            raise CallError(
                f"{definition.name}: the reference returned a {type(value).__name__} for output `{item.name}`. Return a"
                " tensor."
            )
        _check_shape(definition, item, value, shape)
        _check_unknown(definition, item, value, unknown)
        _check_dtype(definition, item, value, output_dtype(definition, item, inputs))
    return values


def _versions(definition: Definition, inputs: Sequence[Any]) -> list[tuple[str, Tensor, int]]:
    """How often each input has been changed in place, where torch counts that."""
    return [
        (label, tensor, tensor._version)
        for item, value in zip(definition.inputs, inputs, strict=True)
        for label, tensor in labelled(item, value if isinstance(value, list | tuple) else [value])
        if type(tensor) in (Tensor, torch.nn.Parameter) and not tensor.is_inference()
    ]


def _require_unchanged(definition: Definition, versions: Sequence[tuple[str, Tensor, int]]) -> None:
    for label, tensor, version in versions:
        if tensor._version != version:
            raise CallError(
                f"{definition.name}: the reference changed its input `{label}` in place, and has changed the caller's"
                " tensor. Write it without operations that end in `_`, or on a clone."
            )


def _check_unknown(definition: Definition, item: Output, value: Tensor, bound: dict[str, tuple[int, str]]) -> None:
    """One name, one size: also for the sizes that only the call decides."""
    own = item.shape.dims
    for dim, size in zip(own, value.shape[value.ndim - len(own) :], strict=True):
        if isinstance(dim, Unknown):
            other, source = bound.setdefault(dim.name, (size, item.name))
            if size != other:
                raise CallError(
                    f"{definition.name}: the reference returned shape {shown(value.shape)} for output"
                    f" `{item.name}`; its"
                    f' definition is "{item.shape}", and {dim.name} is {other} here, from `{source}`. Correct the'
                    " reference"
                    " or the annotation."
                )


def _check_shape(definition: Definition, item: Output, value: Tensor, wanted: tuple[Any, ...]) -> None:
    if len(wanted) == value.ndim and all(
        size is None or size == own for size, own in zip(wanted, value.shape, strict=True)
    ):
        return
    spelled = shown(["?" if size is None else size for size in wanted])
    raise CallError(
        f"{definition.name}: the reference returned shape {shown(value.shape)} for output `{item.name}`; its"
        " definition "
        f'"{item.shape}" gives {spelled}. Correct the reference or the annotation.'
    )


def _check_dtype(definition: Definition, item: Output, value: Tensor, wanted: torch.dtype) -> None:
    if value.dtype != wanted:
        raise CallError(
            f"{definition.name}: the reference returned {short(value.dtype)} for output `{item.name}`; its definition "
            f"{item.element.name} gives {short(wanted)}. Correct the reference or the annotation."
        )


def output_dtype(definition: Definition, item: Output, inputs: Sequence[Any]) -> torch.dtype:
    """The dtype of an output: its fixed one, or that of the inputs that share its element type."""
    for source, value in zip(definition.inputs, inputs, strict=True):
        if source.element.name == item.element.name and value is not None:
            tensor = value[0] if isinstance(value, list | tuple) else value
            assert isinstance(tensor, Tensor)
            return tensor.dtype
    found: torch.dtype = getattr(torch, item.element.dtypes[0].name)
    return found


def _gradients(definition: Definition, inputs: Sequence[Any], attributes: Mapping[str, Any], returned: Any) -> Values:
    """The gradients that a gradient function returned, one an input of the operator, as the outputs of its operator."""
    given = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    if len(given) != len(definition.differentiates):
        raise CallError(
            f"{definition.name}: the gradient function returned {len(given)} values; the operator has"
            f" {len(definition.differentiates)} inputs ({', '.join(definition.differentiates)}). Return one for each,"
            " None where there is no gradient."
        )
    found = dict(zip(definition.differentiates, given, strict=True))
    sources = {item.name: value for item, value in zip(definition.inputs, inputs, strict=True)}
    needs = attributes[NEEDS]
    values = []
    for item in definition.outputs:
        assert item.mirrors is not None
        value, source = found[item.mirrors], sources[item.mirrors]
        if source is None and value is not None:
            raise CallError(
                f"{definition.name}: the gradient function returned a gradient for input `{item.mirrors}`, which is"
                " None in this call. Return None."
            )
        needed = bool(needs >> definition.differentiates.index(item.mirrors) & 1)
        absent = source is None
        values.append(
            placeholder(definition, item, inputs)
            if absent
            else _gradient(definition, item.mirrors, value, source, needed)
        )
    return tuple(values)


def placeholder(definition: Definition, item: Output, inputs: Sequence[Any]) -> Tensor:
    """What a gradient operator gives where an optional input is absent: no elements, and nobody reads it."""
    first = next(value for value in inputs if isinstance(value, Tensor))
    return first.new_empty((0,), dtype=output_dtype(definition, item, inputs))


def _gradient(definition: Definition, name: str, value: Any, source: Any, needed: bool) -> Any:
    if isinstance(source, list | tuple):
        values = list(value) if isinstance(value, list | tuple) else [value] * len(source) if value is None else [value]
        if len(values) != len(source):
            raise CallError(
                f"{definition.name}: the gradient function returned {len(values)} gradients for the {len(source)}"
                f" tensors of `{name}`. Return a list of {len(source)}."
            )
        return [
            _gradient(definition, f"{name}[{index}]", one, tensor, needed)
            for index, (one, tensor) in enumerate(zip(values, source, strict=True))
        ]
    if value is None and not (needed and source.dtype.is_floating_point):
        return torch.zeros_like(source)
    if value is None:
        raise CallError(
            f"{definition.name}: the gradient function returned None for input `{name}`, whose gradient is needed. "
            "Return its gradient (zeros_like if it is zero)."
        )
    if not isinstance(value, Tensor):
        raise CallError(
            f"{definition.name}: the gradient function returned a {type(value).__name__} for input `{name}`. Return a"
            " tensor."
        )
    if value.shape != source.shape or value.dtype != source.dtype:
        raise CallError(
            f"{definition.name}: the gradient function returned {short(value.dtype)} of shape {shown(value.shape)} for"
            f" input `{name}`, which is {short(source.dtype)} of shape {shown(source.shape)}. Return a gradient of that"
            " shape and dtype."
        )
    return value


def _fresh(value: Any, inputs: Sequence[Any]) -> Any:
    """The value, or a copy where it shares memory with an input."""
    if isinstance(value, list):
        return [_fresh(item, inputs) for item in value]
    flat = [
        tensor
        for item in inputs
        for tensor in (item if isinstance(item, list | tuple) else [item])
        if tensor is not None
    ]
    return value.clone() if any(alias(value, tensor) for tensor in flat) else value


def alias(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors share memory."""
    if left is right:
        return True
    return torch._C._has_storage(left) and torch._C._has_storage(right) and bool(torch._C._is_alias_of(left, right))  # type: ignore[attr-defined]
