"""A traced reference as ONNX nodes, with the operator's names, ready to stand in a function."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from oneop.errors import ExportError
from oneop.targets.onnx import repairing, sampling, schemas, tracing
from oneop.targets.onnx.calls import MARK, Call
from oneop.targets.onnx.repairing import free_name
from oneop.targets.onnx.tracing import Trace


@dataclass(eq=False)
class Body:
    """The nodes of one reference. ``inputs`` are its formal inputs, ``symbolic`` the values that stand for float
    attributes.

    ``text`` is the same for bodies that compute the same.
    """

    call: Call
    inputs: dict[str, ir.Value]
    symbolic: dict[str, ir.Value]
    nodes: list[ir.Node]
    outputs: list[ir.Value]
    opset_imports: dict[str, int]
    static: bool
    text: bytes = b""

    def all_nodes(self) -> Iterator[ir.Node]:
        return all_nodes(self.nodes)

    def calls(self) -> Iterator[tuple[ir.Node, Call]]:
        """The calls of other operators in it."""
        for node in all_nodes(self.nodes):
            if MARK in node.meta:
                yield node, node.meta[MARK].call


def body_of(call: Call, opset_version: int) -> Body:
    """The body for a call, at the model's opset version. Raises ExportError where the reference cannot be written in
    ONNX.
    """
    trace = tracing.trace(call, opset_version)
    model = trace.model
    repairing.restore_constants(model)
    repairing.widen_indices(model)
    version = model.opset_imports[""]
    if version != opset_version:
        raise ExportError(
            f"{call.definition.name}: its reference cannot be written in ONNX opset {opset_version}, only in "
            f"{version}. "
            f'Export with opset_version={version}, or with fallback="none".'
        )
    return _take_apart(call, trace, model)


def all_nodes(found: list[ir.Node]) -> Iterator[ir.Node]:
    """The nodes, and those of their subgraphs."""
    for node in found:
        yield node
        for attribute in node.attributes.values():
            graphs = (
                [attribute.as_graph()]
                if attribute.type == ir.AttributeType.GRAPH
                else attribute.as_graphs()
                if attribute.type == ir.AttributeType.GRAPHS
                else []
            )
            for graph in graphs:
                yield from all_nodes(list(graph))


def _take_apart(call: Call, trace: Trace, model: ir.Model) -> Body:
    graph = model.graph
    values, own = list(graph.inputs), list(graph)
    constants = [_constant(value) for value in list(graph.initializers.values())]
    outputs = list(graph.outputs)  # now that constants are nodes: one may be an output
    graph.outputs.clear()
    graph.inputs.clear()
    graph.initializers.clear()
    graph.remove(own)
    labels = [label for _, label, _ in sampling.labelled(call)]
    body = Body(
        call,
        dict(zip(labels, values, strict=False)),
        dict(zip(trace.symbolic, values[len(labels) :], strict=True)),
        [*constants, *own],
        outputs,
        {
            **model.opset_imports,
            **dict.fromkeys([node.domain for node in all_nodes(own) if MARK in node.meta], schemas.VERSION),
        },
        trace.static,
    )
    _cast_outputs(body, trace)
    _own_outputs(body)
    _follow_dtype(body)
    _strip(body)
    _rename(body)
    body.text = _text(body)
    return body


def _constant(value: ir.Value) -> ir.Node:
    """A function has no initializers: its constants are nodes."""
    assert value.const_value is not None
    tensor = ir.Tensor(value.const_value.numpy(), dtype=value.const_value.dtype)
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)])
    node.outputs[0].name = value.name
    value.replace_all_uses_with(node.outputs[0], replace_graph_outputs=True)
    return node


def _cast_outputs(body: Body, trace: Trace) -> None:
    for index, (output, dtype) in enumerate(zip(body.outputs, trace.dtypes, strict=True)):
        node = repairing.cast_output(output, dtype)
        if node is not None:
            body.nodes.append(node)
            body.outputs[index] = node.outputs[0]


def _own_outputs(body: Body) -> None:
    """Each output has a node of its own: an input that is passed through, or the same result twice, needs an
    Identity.
    """
    own = set(body.nodes)
    seen: set[ir.Value] = set()
    for index, output in enumerate(body.outputs):
        if output in seen or output.producer() not in own:
            node = ir.Node("", "Identity", [output])
            body.nodes.append(node)
            body.outputs[index] = node.outputs[0]
        seen.add(body.outputs[index])


def _follow_dtype(body: Body) -> None:
    """A symbolic float is cast to the dtype of an input, whichever that is, so that one body serves several dtypes."""
    anchors: dict[int, ir.Value] = {}
    for item, label, _ in sampling.labelled(body.call):
        if item.arity == "required" and not item.element.is_fixed:
            dtype = body.inputs[label].dtype
            assert dtype is not None
            anchors.setdefault(dtype.value, body.inputs[label])
    for value in body.symbolic.values():
        for node in list(value.consumers()):
            if node.op_type == "Cast" and node.domain == "" and node.attributes["to"].as_int() in anchors:
                _replace(body, node, ir.Node("", "CastLike", [value, anchors[node.attributes["to"].as_int()]]))


def _replace(body: Body, old: ir.Node, new: ir.Node) -> None:
    if old not in body.nodes:
        return
    body.nodes[body.nodes.index(old)] = new
    new.outputs[0].name = old.outputs[0].name
    old.outputs[0].replace_all_uses_with(new.outputs[0])
    body.outputs = [new.outputs[0] if output is old.outputs[0] else output for output in body.outputs]
    for index in range(len(old.inputs)):
        old.replace_input_with(index, None)


def _strip(body: Body) -> None:
    """Shapes and dtypes are those of one example, and torch's notes name files of this machine."""
    for value in [*body.inputs.values(), *body.symbolic.values()]:
        _strip_value(value)
    for node in all_nodes(body.nodes):
        node.metadata_props.clear()
        node.doc_string = None
        node.version = None
        for value in node.outputs:
            _strip_value(value)


def _strip_value(value: ir.Value) -> None:
    value.shape = None
    value.type = None
    value.metadata_props.clear()


def _rename(body: Body) -> None:
    """The definition's names for inputs, attributes and outputs; torch's for what is between, numbered where they
    clash.
    """
    taken = set()
    for name, value in [*body.inputs.items(), *body.symbolic.items()]:
        value.name = name
        taken.add(name)
    names = [item.name for item in body.call.definition.outputs]
    if len(names) != len(body.outputs):
        names = [f"{names[0]}_{index}" for index in range(len(body.outputs))]
    for name, value in zip(names, body.outputs, strict=True):
        value.name = free_name(name, taken)
    final = set(body.outputs)
    for number, node in enumerate(all_nodes(body.nodes)):
        node.name = f"node_{number}"
        for value in node.outputs:
            if value not in final:
                value.name = free_name(re.sub(r"\W", "_", value.name or "value"), taken)


def _text(body: Body) -> bytes:
    parts = [",".join([*body.inputs, *body.symbolic]), ",".join(str(value.name) for value in body.outputs)]
    protos = [ir.serde.serialize_node(node).SerializeToString(deterministic=True) for node in body.nodes]
    return b"\0".join([*(part.encode() for part in parts), *protos])
