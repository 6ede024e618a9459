"""Gives nodes of a finished file their functions: what ``fallback="function"`` would have written."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from oneop.definition.attributes import AttributeKind
from oneop.definition.dtypes import DTYPES
from oneop.definition.record import Attribute, Definition
from oneop.errors import ExportError
from oneop.targets.onnx import completing, nodes
from oneop.targets.onnx.calls import MARK, Call, Mark, Tensor

if TYPE_CHECKING:
    from oneop.operator import Operator

Types = Mapping[str, Tensor]


def add_functions(proto: onnx.ModelProto, operators: "Sequence[Operator]", title: str) -> list[str]:
    """Adds to ``proto`` the function of each operator that has nodes and none; returns their names.

    Raises ExportError where the file is of another definition, has no such node, or does not say the types of a node's
    inputs.
    """
    known = {(operator.definition.namespace, operator.definition.onnx_name): operator for operator in operators}
    _require_same(proto, operators, title)
    have = {(function.domain, function.name) for function in proto.functions}
    wanted = {identifier: operator for identifier, operator in known.items() if identifier not in have}
    _require_outside(proto, wanted, title)
    found = [
        (node, _call(wanted[node.domain, node.op_type], node, types, title)) for node, types in _calls(proto, wanted)
    ]
    if not found:
        names = ", ".join(f"{domain}::{kind}" for domain, kind in known)
        why = "has its functions already" if have & known.keys() else "has no node of them"
        raise ExportError(f"{title} {why}: {names}. Give the file that defines the operators of its nodes.")
    _add(proto, [call for _, call in found])
    for node, call in found:
        _complete(node, call)
    return list(dict.fromkeys(call.definition.name for _, call in found))


def _require_same(proto: onnx.ModelProto, operators: "Sequence[Operator]", title: str) -> None:
    exported = {entry.key.removeprefix("oneop.fingerprint."): entry.value for entry in proto.metadata_props}
    for operator in operators:
        mine = operator.definition.fingerprint
        theirs = exported.get(operator.definition.name, mine)
        if theirs != mine:
            raise ExportError(
                f"{operator.definition.name}: {title} was exported from another definition (fingerprint {theirs}) than "
                f"that of {operator.defined_in} (fingerprint {mine}). Give the definition that it was exported from, or"
                " export it again."
            )


def _require_outside(proto: onnx.ModelProto, wanted: Mapping[tuple[str, str], Any], title: str) -> None:
    for function in proto.functions:
        for node in function.node:
            if (node.domain, node.op_type) in wanted:
                raise ExportError(
                    f"{title}: function {function.domain}::{function.name} calls {node.domain}::{node.op_type}, and a "
                    "file does not say the types of tensors inside a function. Inline that function first (oneop "
                    "inspect --inline --only)."
                )


def _calls(
    proto: onnx.ModelProto, wanted: "Mapping[tuple[str, str], Operator]"
) -> Iterator[tuple[onnx.NodeProto, Types]]:
    """The nodes that need a function, with the types of the tensors that they can see."""
    yield from _calls_in(proto.graph, {}, wanted)


def _calls_in(
    graph: onnx.GraphProto, outer: Types, wanted: "Mapping[tuple[str, str], Operator]"
) -> Iterator[tuple[onnx.NodeProto, Types]]:
    types = {**outer, **_types(graph)}
    for node in graph.node:
        if (node.domain, node.op_type) in wanted:
            yield node, types
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _calls_in(inner, types, wanted)


def _types(graph: onnx.GraphProto) -> dict[str, Tensor]:
    names = {dtype.onnx: dtype.name for dtype in DTYPES}
    found = {
        item.name: Tensor(names[item.data_type], tuple(item.dims))
        for item in graph.initializer
        if item.data_type in names
    }
    for item in (*graph.input, *graph.output, *graph.value_info):
        tensor = item.type.tensor_type
        if tensor.elem_type in names and tensor.HasField("shape"):
            sizes = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
            found.setdefault(item.name, Tensor(names[tensor.elem_type], sizes))
    return found


def _call(operator: "Operator", node: onnx.NodeProto, types: Types, title: str) -> Call:
    definition = operator.definition
    where = f"{title}: node {node.name!r} of {definition.name}"
    required = sum(item.arity != "optional" for item in definition.inputs)
    variadic = bool(definition.inputs) and definition.inputs[-1].arity == "variadic"
    if not required <= len(node.input) <= (len(node.input) if variadic else len(definition.inputs)):
        raise ExportError(
            f"{where} has {len(node.input)} inputs, and the definition {len(definition.inputs)}. Export the model"
            " again."
        )
    inputs = []
    for position, item in enumerate(definition.inputs):
        given = list(node.input[position:] if item.arity == "variadic" else node.input[position : position + 1])
        if item.arity != "optional" and "" in given:
            raise ExportError(f"{where} lacks the input `{item.name}`. Export the model again.")
        inputs.append(tuple(_tensor(name, types, where, item.name) for name in given if name))
    for item, tensors in zip(definition.inputs, inputs, strict=True):
        for tensor in tensors:
            _require_fit(definition, item, tensor, where)
    return Call(operator, tuple(inputs), _attributes(definition, node, where))


def _tensor(name: str, types: Types, where: str, label: str) -> Tensor:
    if name not in types:
        raise ExportError(
            f"{where}: the file does not say dtype and rank of its input `{label}` ({name}), on which the function "
            "depends. Run onnx.shape_inference.infer_shapes on the model first, or export it again with oneop.export."
        )
    return types[name]


def _require_fit(definition: Definition, item: Any, tensor: Tensor, where: str) -> None:
    admitted = [dtype.name for dtype in item.element.dtypes]
    rank = len(item.shape.dims)
    fits = len(tensor.sizes) == rank or (item.shape.batch is not None and len(tensor.sizes) > rank)
    if tensor.dtype not in admitted or not fits:
        raise ExportError(
            f"{where}: its input `{item.name}` is {tensor.dtype} of {len(tensor.sizes)} dimensions, and the definition"
            f' is "{item.shape}" of {", ".join(admitted)}. Export the model again.'
        )


def _attributes(definition: Definition, node: onnx.NodeProto, where: str) -> dict[str, Any]:
    given = {attribute.name: attribute for attribute in node.attribute}
    found = {}
    for item in definition.attributes:
        if item.name in given:
            found[item.name] = _value(item, given[item.name], where)
        elif item.is_required and not item.optional:
            raise ExportError(f"{where} lacks the attribute `{item.name}`. Export the model again.")
        else:
            found[item.name] = None if item.is_required else _as_list(item.kind, item.default)
    return found


def _as_list(kind: AttributeKind, value: Any) -> Any:
    return list(value) if kind.is_list and value is not None else value


def _value(item: Attribute, attribute: onnx.AttributeProto, where: str) -> Any:
    stated = onnx.AttributeProto.AttributeType.Name(attribute.type)
    if stated != item.kind.onnx:
        raise ExportError(
            f"{where}: its attribute `{item.name}` is {stated}, and the definition has {item.kind.annotation}. Export"
            " the model again."
        )
    value = onnx.helper.get_attribute_value(attribute)
    entries = list(value) if item.kind.is_list else [value]
    try:
        entries = [entry.decode() if isinstance(entry, bytes) else item.kind.element(entry) for entry in entries]
    except UnicodeDecodeError:
        raise ExportError(f"{where}: its attribute `{item.name}` is not UTF-8. Export the model again.") from None
    if item.choices is not None and any(entry not in item.choices for entry in entries):
        raise ExportError(
            f"{where}: its attribute `{item.name}` is {entries[0]!r}; the definition admits "
            f"{', '.join(map(repr, item.choices))}. Export the model again."
        )
    return entries if item.kind.is_list else entries[0]


def _add(proto: onnx.ModelProto, calls: Sequence[Call]) -> None:
    """Has the exporter's own steps write the functions, for a model that has these calls and nothing else."""
    graph = ir.Graph([], [], nodes=[], opset_imports=_imports(proto))
    for call in calls:
        values = [ir.Value(name=label) for label, _ in call.tensors()]
        node = ir.Node(*call.identifier, values, nodes.attributes(call.definition, call.attributes))
        node.meta[MARK] = Mark(call, "function")
        graph.append(node)
    model = ir.Model(graph, ir_version=max(proto.ir_version, 8))
    completing.complete(model)
    written = ir.to_proto(model)
    proto.functions.extend(written.functions)
    proto.ir_version = max(proto.ir_version, 8)  # the first that knows functions
    known = {entry.key for entry in proto.metadata_props}
    proto.metadata_props.extend(entry for entry in written.metadata_props if entry.key not in known)
    imported = {entry.domain for entry in proto.opset_import}
    proto.opset_import.extend(entry for entry in written.opset_import if entry.domain not in imported)


def _imports(proto: onnx.ModelProto) -> dict[str, int]:
    found = {("" if entry.domain == "ai.onnx" else entry.domain): entry.version for entry in proto.opset_import}
    if found.get("", 0) < completing.OLDEST_OPSET:
        raise ExportError(
            f"The model has opset version {found.get('', 'none')}; oneop writes functions for {completing.OLDEST_OPSET}"
            " and newer. Export it again with opset_version=18."
        )
    return found


def _complete(node: onnx.NodeProto, call: Call) -> None:
    """The node as the exporter writes it: every attribute, and a place for each absent input."""
    have = {attribute.name for attribute in node.attribute}
    for attribute in nodes.attributes(call.definition, call.attributes):
        if attribute.name not in have:
            node.attribute.append(nodes.proto(attribute))
    node.input.extend([""] * (call.input_count - len(node.input)))
