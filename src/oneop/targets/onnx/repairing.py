"""Puts right what torch's exporter and its optimizer leave wrong in a model."""

from collections.abc import Collection

import onnx_ir as ir
import torch

from oneop.definition.dtypes import BY_NAME


def restore_constants(model: ir.Model) -> None:
    """Gives constants that are used, and that no graph holds any more, a place under a name of their own.

    A rule of onnxscript's optimizer names the constants it makes by their use: ``x_min`` and ``x_max`` for a Clip of
    ``x``. Where ``x`` is clipped twice, the second pair pushes the first out of the model, which then does not load.
    """
    used = [value for node in ir.traversal.RecursiveGraphIterator(model.graph) for value in node.inputs]
    lost = dict.fromkeys(value for value in [*used, *model.graph.outputs] if value is not None and _is_lost(value))
    if not lost:
        return
    kept = [value for node in ir.traversal.RecursiveGraphIterator(model.graph) for value in node.outputs]
    kept += [*model.graph.inputs, *model.graph.initializers.values()]
    taken = {value.name for value in [*used, *kept] if value is not None and value.name and value not in lost}
    for value in lost:
        value.name = free_name(value.name or "constant", taken)
        model.graph.initializers[value.name] = value


def widen_indices(model: ir.Model) -> None:
    """Casts the indices of GatherND and ScatterND to int64, the only dtype that ONNX has for them: torch hands
    on those of the reference.
    """
    for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
        indices = node.inputs[1] if node.op_type in ("GatherND", "ScatterND") and node.domain == "" else None
        if indices is None or indices.dtype in (None, ir.DataType.INT64) or node.graph is None:
            continue
        cast = ir.Node("", "Cast", [indices], [ir.AttrInt64("to", ir.DataType.INT64.value)])
        cast.outputs[0].name = f"{node.outputs[0].name}_indices"
        cast.outputs[0].dtype = ir.DataType.INT64
        node.graph.insert_before(node, cast)
        node.replace_input_with(1, cast.outputs[0])


def state_constants(graph: ir.Graph, known: Collection[ir.Node] = ()) -> None:
    """Writes floats that were attributes of a function as tensors, which converters to float16 know; ``known`` nodes
    stay as they are.
    """
    for node in graph.all_nodes():
        if node.op_type != "Constant" or node.domain != "" or node in known:
            continue
        for name, kind in (("value_float", ir.AttributeType.FLOAT), ("value_floats", ir.AttributeType.FLOATS)):
            attribute = node.attributes.get(name)
            if attribute is not None and attribute.type == kind and not attribute.is_ref():
                del node.attributes[name]
                node.attributes.add(ir.AttrTensor("value", ir.tensor(attribute.value, dtype=ir.DataType.FLOAT)))


def cast_output(output: ir.Value, wanted: torch.dtype) -> ir.Node | None:
    """The Cast that gives an output the dtype of the traced one, if it needs one.

    torch's exporter computes some float16 sums in float32 and does not come back.
    """
    dtype = ir.DataType(BY_NAME[str(wanted).removeprefix("torch.")].onnx)
    if output.dtype in (None, dtype):
        return None
    node = ir.Node("", "Cast", [output], [ir.AttrInt64("to", dtype.value)])
    node.outputs[0].name = output.name
    return node


def free_name(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def _is_lost(value: ir.Value) -> bool:
    return (
        value.producer() is None
        and value.const_value is not None
        and not value.is_initializer()
        and not value.is_graph_input()
    )
