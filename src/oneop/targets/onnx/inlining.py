"""Puts functions of a finished file in the place of the nodes that call them."""

from collections.abc import Collection, Iterator

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from oneop.errors import ExportError
from oneop.targets.onnx import repairing, settling, tracing
from oneop.targets.onnx.repairing import free_name


def inline(proto: onnx.ModelProto, chosen: Collection[tuple[str, str, str]]) -> None:
    """Inlines the functions with these (domain, name, overload) in ``proto``, and removes them.

    Raises ExportError where a body cannot stand in the place of its node.
    """
    try:
        proto.CopyFrom(ir.to_proto(_inlined(proto, chosen)))
    except ExportError:
        raise
    except Exception as error:  # onnx_ir looks at tensors and attributes when they are used, and may stumble anywhere
        raise _broken(error) from error


def _inlined(proto: onnx.ModelProto, chosen: Collection[tuple[str, str, str]]) -> ir.Model:
    with tracing.quiet():
        model = ir.from_proto(proto)
    _require_whole(model)
    functions = [function for function in model.functions.values() if _key(function) in chosen]
    _rename(model, functions)
    for function in functions:
        _own_outputs(function)
    known = set(model.graph.all_nodes())
    marked = {function.identifier() for function in functions}
    common.InlinePass(lambda function: function.identifier() in marked)(model)
    for identifier in marked:
        model.functions.pop(identifier, None)  # one that no node called
    settling.settle(model.graph, known)
    repairing.state_constants(model.graph, known)
    _forget_domains(model, {function.domain for function in functions})
    return model


def _require_whole(model: ir.Model) -> None:
    """Every tensor comes from somewhere: onnx_ir takes one that does not for one more input."""
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for graph in graphs:
        for node in graph.all_nodes():
            for value in node.inputs:
                if value is None or value.producer() is not None or value.is_graph_input() or value.is_initializer():
                    continue
                raise ExportError(
                    f"The graph of this file does not hold together: nothing makes the tensor {value.name!r}, which"
                    f" node {node.name!r} reads. Export the model again."
                )


def _broken(error: BaseException) -> ExportError:
    while error.__cause__ is not None:
        error = error.__cause__
    said = " ".join(str(error).split())[:200] or type(error).__name__
    return ExportError(f"The graph of this file does not hold together ({said}). Export the model again.")


def _key(function: ir.Function) -> tuple[str, str, str]:
    domain, name, overload = function.identifier()
    return ("" if domain == "ai.onnx" else domain, name, overload)


def _rename(model: ir.Model, functions: list[ir.Function]) -> None:
    """Gives what bodies compute names that no graph has, in subgraphs neither: names may not be hidden by others."""
    taken = {value.name for value in _values(model.graph) if value.name}
    for function in functions:
        for node in function.all_nodes():
            for value in node.outputs:
                if value.name in taken:
                    value.name = free_name(f"{function.name}_{value.name}", taken)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph.all_nodes():
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from attribute.as_graph().inputs
            elif attribute.type == ir.AttributeType.GRAPHS:
                yield from (value for inner in attribute.as_graphs() for value in inner.inputs)


def _own_outputs(function: ir.Function) -> None:
    """An output that is an input, or the same as another, gets a node: the graph around it gives each its own name."""
    seen: set[ir.Value] = set()
    for index, output in enumerate(function.outputs):
        if output in seen or output.producer() is None:
            node = ir.Node("", "Identity", [output])
            node.outputs[0].name = f"{output.name}_{index}"
            function.append(node)
            function.outputs[index] = node.outputs[0]
        seen.add(function.outputs[index])


def _forget_domains(model: ir.Model, domains: set[str]) -> None:
    used = {node.domain for node in model.graph.all_nodes()}
    used |= {node.domain for function in model.functions.values() for node in function.all_nodes()}
    used |= {function.domain for function in model.functions.values()}
    for domain in domains - used - {"", "ai.onnx"}:
        model.opset_imports.pop(domain, None)
