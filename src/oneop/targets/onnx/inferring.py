"""Tells onnx's shape inference the types and shapes of an operator's outputs, from the definition's dimensions."""

from collections.abc import Callable, Mapping
from typing import Any

import onnx
from onnx.shape_inference import InferenceContext

from oneop.definition.dims import Anything, Binary, Call, Dim, DimError, Name, Number, evaluate, names
from oneop.definition.record import Definition, Output

Size = int | str | None
"""A number, a name that the model gives it, or nothing."""


def inference_of(definition: Definition) -> Callable[[InferenceContext], None]:
    """The function that onnx calls for each node of the operator."""

    def infer(context: InferenceContext) -> None:
        given = _given(definition, context)
        sizes, batches = _bound(definition, given)
        scope: dict[str, Any] = {**_attributes(definition, context), **sizes}
        for index, output in enumerate(_outputs(definition, given)):
            if index < context.get_num_outputs() and (found := _type(definition, output, given, scope, batches)):
                context.set_output_type(index, found)

    return infer


def _given(definition: Definition, context: InferenceContext) -> dict[str, list[onnx.TypeProto]]:
    """The types of each input's tensors that are known to be tensors; of a variadic one, of as many as there are."""
    found: dict[str, list[onnx.TypeProto]] = {item.name: [] for item in definition.inputs}
    for index in range(context.get_num_inputs()):
        item = definition.inputs[min(index, len(definition.inputs) - 1)]
        kind = context.get_input_type(index) if context.has_input(index) else None
        if isinstance(kind, onnx.TypeProto) and kind.HasField("tensor_type"):
            found[item.name].append(kind)
    return found


def _outputs(definition: Definition, given: Mapping[str, list[onnx.TypeProto]]) -> list[Output]:
    """One for each tensor: a gradient operator gives as many as a variadic input has."""
    found: list[Output] = []
    for output in definition.outputs:
        is_list = output.mirrors is not None and definition.input(output.mirrors).arity == "variadic"
        found.extend([output] * (len(given[output.mirrors or ""]) if is_list else 1))
    return found


def _shape(kind: onnx.TypeProto) -> list[Size] | None:
    if not kind.tensor_type.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in kind.tensor_type.shape.dim]


def _bound(
    definition: Definition, given: Mapping[str, list[onnx.TypeProto]]
) -> tuple[dict[str, Size], dict[str, list[Size]]]:
    """What the inputs say of each name: a number rather than a name, and a name rather than nothing."""
    sizes: dict[str, Size] = {}
    batches: dict[str, list[Size]] = {}
    for item in definition.inputs:
        for kind in given[item.name]:
            shape = _shape(kind)
            leading = None if shape is None else len(shape) - len(item.shape.dims)
            if shape is None or leading is None or leading < 0 or (leading and item.shape.batch is None):
                continue  # of unknown rank, or no call of this operator: whoever runs it will say so
            if item.shape.batch is not None:
                batches.setdefault(item.shape.batch, shape[:leading])
            for dim, size in zip(item.shape.dims, shape[leading:], strict=True):
                if isinstance(dim, Name):
                    sizes[dim.name] = _better(sizes.get(dim.name), size)
    return sizes, batches


def _better(known: Size, size: Size) -> Size:
    """Numbers that differ raise nothing: the node may be in a branch that is never taken."""
    return size if known is None or (isinstance(size, int) and not isinstance(known, int)) else known


def _attributes(definition: Definition, context: InferenceContext) -> dict[str, int]:
    """The integers, which sizes may depend on."""
    found: dict[str, int] = {}
    for item in definition.attributes:
        attribute: Any = context.get_attribute(item.name)
        if isinstance(attribute, onnx.AttributeProto) and attribute.type == onnx.AttributeProto.INT:
            found[item.name] = attribute.i
        elif attribute is None and not item.is_required and isinstance(item.default, int):
            found[item.name] = item.default
    return found


def _type(
    definition: Definition,
    output: Output,
    given: Mapping[str, list[onnx.TypeProto]],
    scope: Mapping[str, Any],
    batches: Mapping[str, list[Size]],
) -> onnx.TypeProto | None:
    element = _element(definition, output, given)
    if element is None:
        return None
    found = onnx.TypeProto()
    found.tensor_type.elem_type = element
    if output.shape.batch is not None and output.shape.batch not in batches:
        return found
    leading = batches[output.shape.batch] if output.shape.batch is not None else []
    shape = found.tensor_type.shape
    for size in [*leading, *(_size(dim, scope) for dim in output.shape.dims)]:
        dim = shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None:
            dim.dim_param = size
    return found


def _element(definition: Definition, output: Output, given: Mapping[str, list[onnx.TypeProto]]) -> int | None:
    if output.element.is_fixed:
        return output.element.dtypes[0].onnx
    for item in definition.inputs:
        if item.element == output.element and given[item.name]:
            return int(given[item.name][0].tensor_type.elem_type)
    return None


def _size(dim: Dim, scope: Mapping[str, Any]) -> Size:
    if isinstance(dim, Name):
        found: Size = scope.get(dim.name)
        return found
    if not isinstance(dim, Number | Binary | Call) or isinstance(dim, Anything):
        return None
    if not all(isinstance(scope.get(name), int) for name in names(dim)):
        return None
    try:
        size = evaluate(dim, scope)
    except DimError:
        return None
    return int(size) if size >= 0 else None
