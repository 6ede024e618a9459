"""The sizes that a model file states of its outputs, and those that onnx infers, for inputs of given sizes."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import onnx

Shape = tuple[int | None, ...]

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


def stated_shapes(path: str | PathLike[str], sizes: Sequence[Sequence[int]]) -> dict[str, list[Shape | None]]:
    """For each source, the shape of each output: None for a size, or a shape, that nothing is said of.

    ``sizes`` are those of the inputs, which give the names in the file their values.
    """
    model = onnx.load(path, load_external_data=False)
    names: dict[str, int] = {}
    for item, own in zip(model.graph.input, sizes, strict=True):
        for dim, size in zip(item.type.tensor_type.shape.dim, own, strict=True):
            if dim.dim_param:
                names[dim.dim_param] = size
    stated = [_shape(item, names) for item in model.graph.output]
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for item in bare.graph.output:
        item.type.tensor_type.ClearField("shape")
    for item, own in zip(bare.graph.input, sizes, strict=True):
        for dim, size in zip(item.type.tensor_type.shape.dim, own, strict=True):
            dim.dim_value = size
    inferred = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    return {"the file": stated, "onnx's shape inference": [_shape(item, {}) for item in inferred.graph.output]}


def _shape(item: Any, names: Mapping[str, int]) -> Shape | None:
    tensor = item.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else _value(dim.dim_param, names) for dim in tensor.shape.dim
    )


def _value(text: str, names: Mapping[str, int]) -> int | None:
    """The value of a size's name or expression; None where something in it is unknown."""
    try:
        return _evaluate(ast.parse(text, mode="eval").body, names)
    except (SyntaxError, KeyError, ZeroDivisionError):
        return names.get(text)


def _evaluate(tree: ast.expr, names: Mapping[str, int]) -> int:
    match tree:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=symbol, right=right) if type(symbol) in _OPERATORS:
            return _OPERATORS[type(symbol)](_evaluate(left, names), _evaluate(right, names))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, names)
        case ast.Call(func=ast.Name(id="max" | "Max"), args=arguments):
            return max(_evaluate(argument, names) for argument in arguments)
        case ast.Call(func=ast.Name(id="min" | "Min"), args=arguments):
            return min(_evaluate(argument, names) for argument in arguments)
    raise KeyError(ast.unparse(tree))
