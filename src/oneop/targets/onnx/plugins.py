"""What ``fallback="none"`` adds to a node for TensorRT, whose parser looks for a plugin by these attributes."""

import onnx_ir as ir

from oneop.errors import ExportError
from oneop.targets.onnx.calls import Call
from oneop.targets.plugins import PARSER_ATTRIBUTES, node_attributes

_LARGEST = 2**31 - 1


def add_attributes(node: ir.Node, call: Call) -> None:
    """Raises ExportError for a value that TensorRT's parser would read as another one."""
    definition = call.definition
    for item in definition.attributes:
        if item.name in PARSER_ATTRIBUTES:
            raise ExportError(
                f'{definition.name}: attribute `{item.name}` means something else to TensorRT, which fallback="none" is'
                ' for. Give it another name, or export with fallback="function".'
            )
        if item.kind.element is int:
            _require_32_bits(call, item.name, call.attributes[item.name])
    for name, value in node_attributes(definition, [len(tensors) for tensors in call.inputs]).items():
        node.attributes.add(ir.AttrString(name, value))


def input_count(call: Call) -> int:
    """How many inputs the node has: absent ones at the end are left out."""
    there = [number for number, tensors in enumerate(call.inputs) if tensors]
    return call.input_count - (len(call.inputs) - 1 - max(there, default=-1))


def _require_32_bits(call: Call, name: str, value: int | list[int] | None) -> None:
    for entry in value if isinstance(value, list | tuple) else [value]:
        if entry is not None and not -_LARGEST - 1 <= entry <= _LARGEST:
            raise ExportError(
                f"{call.definition.name}: attribute `{name}` holds {entry}, and TensorRT's ONNX parser, which"
                ' fallback="none" is for, keeps the last 32 bits of an integer. Export with a smaller value, or with'
                ' fallback="function".'
            )
