"""The translation table for torch.onnx.export: each call of an operator becomes one node, with every attribute
written out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import onnx_ir as ir

from oneop import registry
from oneop.definition.record import Definition
from oneop.errors import ExportError
from oneop.targets.onnx import nodes, schemas, torch_exporter
from oneop.targets.onnx.calls import MARK, Call, Mark, Tensor

if TYPE_CHECKING:
    from oneop.operator import Operator

Fallback = Literal["function", "inline", "none"]
"""What a file holds for a runtime that has no kernel of an operator: a model-local function beside the node; the
reference's nodes in place of the node; nothing."""

Table = dict[Callable[..., Any], Callable[..., Any]]


def table(fallback: str | None) -> Table:
    return {operator.torch_op: _translation(operator, fallback) for operator in registry.operators().values()}


def require_fallback(fallback: str) -> None:
    if fallback not in get_args(Fallback):
        raise ExportError(
            f"oneop.export: fallback is {fallback!r}. Pass one of "
            f"{', '.join(repr(name) for name in get_args(Fallback))}."
        )


def _translation(operator: "Operator", fallback: str | None) -> Callable[..., Any]:
    def translate(*args: Any, **kwargs: Any) -> Any:
        definition = operator.definition
        schemas.register(definition)
        values = _input_values(definition, args, kwargs)
        attributes = _attribute_values(definition, kwargs)
        tensors = tuple(tuple(map(_tensor, present)) for present in map(_present, values))
        call = Call(operator, tensors, attributes)
        return torch_exporter.record_node(
            call.identifier,
            [entry for value in values for entry in (value if isinstance(value, Sequence) else [value])],
            nodes.attributes(definition, attributes),
            _outputs(definition, tensors),
            {MARK: Mark(call, fallback)},
        )

    translate.__name__ = f"{definition_name(operator)}_to_onnx"
    return translate


def definition_name(operator: "Operator") -> str:
    return operator.definition.name.replace("::", "_")


def _input_values(definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """One entry an input: a value, None, or a list of values. torch leaves out trailing ones that equal their
    default.
    """
    return list(args) + [kwargs.get(item.name) for item in definition.inputs[len(args) :]]


def _attribute_values(definition: Definition, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Every attribute: torch leaves out those that equal the schema's default."""
    return {item.name: kwargs.get(item.name, item.default) for item in definition.attributes}


def _present(value: Any) -> Sequence[ir.Value]:
    if value is None:
        return ()
    return value if isinstance(value, Sequence) else (value,)


def _tensor(value: ir.Value) -> Tensor:
    assert value.dtype is not None, "torch's exporter sets the type of every value"
    assert value.shape is not None, "torch's exporter sets the shape of every value"
    sizes = tuple(size if isinstance(size, int) else None for size in value.shape)
    return Tensor(nodes.dtype_name(value.dtype), sizes)


def _outputs(definition: Definition, tensors: Sequence[Sequence[Tensor]]) -> int:
    """How many outputs the node has. A gradient operator gives one a tensor of a variadic input."""
    counts = {item.name: len(found) for item, found in zip(definition.inputs, tensors, strict=True)}
    variadic = [
        item for item in definition.outputs if item.mirrors and definition.input(item.mirrors).arity == "variadic"
    ]
    if variadic and len(definition.outputs) > 1:
        raise ExportError(
            f"{definition.name}: output `{variadic[0].name}` is a list beside other outputs, which torch's ONNX "
            "exporter cannot write. "
            "Export the model without this gradient."
        )
    return sum(counts[item.mirrors or ""] for item in variadic) or len(definition.outputs)
