"""Settles what is known once a function stands in the place of its node: its attributes, and which inputs are there.

oneop's functions ask such questions where the calls of a model need different bodies. A runtime that knows no functions
mostly knows no sequences of tensors and no OptionalHasElement either, so that the answers have to be worked out here.
"""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import onnx_ir as ir

_LARGEST = 1000
"""Elements of what is computed: these are attributes, not tensors of the model."""

_COMPUTED: dict[str, Callable[..., Any]] = {
    "Not": np.logical_not,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Equal": np.equal,
    "IsNaN": np.isnan,
    "Identity": lambda value: value,
    "Size": lambda value: np.asarray(value.size, np.int64),
    "Reshape": lambda value, shape: np.reshape(value, shape),
}


def settle(graph: ir.Graph, known: Collection[ir.Node]) -> None:
    """Works out the nodes that are not in ``known``, those that were inlined: conditions, and the branches they choose.

    Nothing else is changed. What stays undecided, because it depends on a tensor, stays.
    """
    settler = _Settler(known)
    settler.graph(graph)
    settler.remove_unused()


class _Settler:
    def __init__(self, known: Collection[ir.Node]) -> None:
        self.known = known
        self.values: dict[ir.Value, Any] = {}
        self.new: list[ir.Node] = []

    def graph(self, graph: ir.Graph) -> None:
        for node in graph:  # goes on with the nodes that _splice puts in
            if node not in self.known and node.domain in ("", "ai.onnx"):
                if node.op_type == "If" and (chosen := self._chosen(node)) is not None:
                    self._splice(graph, node, chosen)
                    continue
                self.new.append(node)
                self._evaluate(node)
            for inner in _graphs(node):
                self.graph(inner)

    def _evaluate(self, node: ir.Node) -> None:
        if node.op_type == "Constant":
            self.values[node.outputs[0]] = _constant(node)
        elif node.op_type == "OptionalHasElement":
            self._evaluate_presence(node)
        elif node.op_type == "SequenceAt":
            self._take_entry(node)
        elif node.inputs and all(self._is_small(value) for value in node.inputs):
            self._compute(node, [self.values[value] for value in node.inputs if value is not None])

    def _is_small(self, value: ir.Value | None) -> bool:
        found = self.values.get(value) if value is not None else None
        return isinstance(found, np.ndarray) and found.size <= _LARGEST

    def _compute(self, node: ir.Node, values: list[Any]) -> None:
        try:
            if node.op_type in _COMPUTED:
                result = _COMPUTED[node.op_type](*values)
            elif node.op_type == "Concat":
                result = np.concatenate(values, axis=node.attributes["axis"].as_int())
            elif node.op_type == "Gather":
                axis = node.attributes.get("axis")
                result = np.take(values[0], values[1], axis=0 if axis is None else axis.as_int())
            else:
                return
        except (TypeError, ValueError, IndexError, KeyError):
            return  # a runtime will say what is wrong with it, at its place
        self.values[node.outputs[0]] = np.asarray(result)

    def _evaluate_presence(self, node: ir.Node) -> None:
        """An input that is there is, unless its type says that it may be none."""
        given = node.inputs[0] if node.inputs else None
        if given is None or not isinstance(given.type, ir.OptionalType):
            self.values[node.outputs[0]] = np.asarray(given is not None)

    def _take_entry(self, node: ir.Node) -> None:
        sequence, position = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
        made = sequence.producer() if sequence is not None else None
        if made is None or made.op_type != "SequenceConstruct" or made.domain or not self._is_small(position):
            return
        assert position is not None
        index = int(self.values[position].reshape(-1)[0]) if self.values[position].size == 1 else len(made.inputs)
        if not -len(made.inputs) <= index < len(made.inputs):
            return
        entry = made.inputs[index]
        assert entry is not None
        if not node.outputs[0].is_graph_output():
            node.outputs[0].replace_all_uses_with(entry)

    def _chosen(self, node: ir.Node) -> ir.Graph | None:
        condition = node.inputs[0] if node.inputs else None
        if condition is None or not self._is_small(condition) or self.values[condition].size != 1:
            return None
        name = "then_branch" if bool(self.values[condition].reshape(-1)[0]) else "else_branch"
        branch = node.attributes.get(name)
        if branch is None or branch.type != ir.AttributeType.GRAPH:
            return None
        graph = branch.as_graph()
        fits = len(graph.outputs) == len(node.outputs) and not graph.initializers
        return graph if fits else None

    def _splice(self, graph: ir.Graph, node: ir.Node, branch: ir.Graph) -> None:
        """The branch in the place of its If."""
        outputs, nodes = list(branch.outputs), list(branch)
        branch.outputs.clear()
        branch.remove(nodes)
        copies = [ir.Node("", "Identity", [output]) for output in outputs]
        for copy, old in zip(copies, node.outputs, strict=True):
            copy.outputs[0].name = old.name
        values = [copy.outputs[0] for copy in copies]
        for other in _graphs(node):
            for dropped in other.all_nodes():  # a use in what is dropped is none
                for index in range(len(dropped.inputs)):
                    dropped.replace_input_with(index, None)
        ir.convenience.replace_nodes_and_values(graph, node, [node], [*nodes, *copies], node.outputs, values)

    def remove_unused(self) -> None:
        """What led to the answers and to nothing else."""
        for node in reversed(self.new):
            if node.graph is None or any(value.uses() or value.is_graph_output() for value in node.outputs):
                continue
            if node.op_type in (*_COMPUTED, "Constant", "Concat", "Gather", "OptionalHasElement") or (
                node.op_type.startswith("Sequence")
            ):
                node.graph.remove(node, safe=True)


def _graphs(node: ir.Node) -> list[ir.Graph]:
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            found.extend(attribute.as_graphs())
    return found


_STATED: dict[str, tuple[ir.AttributeType, Any]] = {
    "value_float": (ir.AttributeType.FLOAT, np.float32),
    "value_floats": (ir.AttributeType.FLOATS, np.float32),
    "value_int": (ir.AttributeType.INT, np.int64),
    "value_ints": (ir.AttributeType.INTS, np.int64),
    "value_string": (ir.AttributeType.STRING, object),
    "value_strings": (ir.AttributeType.STRINGS, object),
}


def _constant(node: ir.Node) -> Any:
    """As numpy has it; None where it is large, or of a kind that no question is about."""
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            return None
        if name == "value" and attribute.type == ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            return tensor.numpy() if tensor.size <= _LARGEST and not isinstance(tensor, ir.ExternalTensor) else None
        if name in _STATED and attribute.type == _STATED[name][0]:
            return np.asarray(attribute.value, dtype=_STATED[name][1])
    return None
