"""Makes what has no elements anew, instead of computing it.

ONNX Runtime leaves an Expand out whose constant shape has a 0 (seen in 1.32), as if it did nothing; and the operators
that torch's exporter writes, such as a Reshape to -1, are not defined for tensors without elements.
"""

from typing import Any

import torch


def fill_empty(program: torch.export.ExportedProgram) -> None:
    """Replaces each tensor of the trace that is empty whatever the inputs are by one of the same size, in place.

    One whose other sizes are not those of inputs stays.
    """
    graph = program.graph
    known: dict[Any, tuple[torch.fx.Node, int]] = {}
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        for axis, size in enumerate(_sizes(value) if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt):
                known.setdefault(size.node.expr, (node, axis))
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            continue
        fixed = [size for size in _sizes(value) if isinstance(size, int)]
        free = [size for size in _sizes(value) if isinstance(size, torch.SymInt)]
        if 0 in fixed and all(size.node.expr in known for size in free):
            _replace(graph, node, value, known)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _replace(
    graph: torch.fx.Graph, node: torch.fx.Node, value: torch.Tensor, known: dict[Any, tuple[torch.fx.Node, int]]
) -> None:
    name = node.name
    sizes: list[Any] = []
    with graph.inserting_before(node):
        for size in _sizes(value):
            if isinstance(size, torch.SymInt):
                asked = graph.call_function(torch.ops.aten.sym_size.int, known[size.node.expr])
                asked.meta["val"] = size
                sizes.append(asked)
            else:
                sizes.append(size)
        made = graph.call_function(torch.ops.aten.full.default, (sizes, 0), {"dtype": value.dtype})
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    made.name = name  # the program's signature has the names of its outputs


def _sizes(value: torch.Tensor) -> list[Any]:
    """Integers, and torch.SymInt where they are free."""
    return list(value.shape)
