"""One model-local function an operator, whatever its calls in the model look like.

ONNX's way to give one operator several bodies is the ``overload``. onnxruntime 1.20 to 1.23 and onnx's
ReferenceEvaluator read past it and take the last body for every node, without a word and with wrong numbers. So there
is one function, and where calls need different bodies it decides, from what the node says of itself (attributes) and of
its inputs (presence, rank, sizes).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir

from oneop.definition.dtypes import BY_NAME
from oneop.definition.record import Attribute, Definition
from oneop.errors import ExportError
from oneop.targets.onnx.bodies import Body, all_nodes
from oneop.targets.onnx.calls import Call
from oneop.targets.onnx.deciding import NAN, Case, Fact, decide
from oneop.targets.onnx.repairing import free_name

FUNCTION = "oneop.function"
"""Marks a function of oneop's in memory; it is not written to the file."""

_ABSENT: dict[str, Any] = {
    "FLOAT": math.nan,
    "INT": -(2**63),
    "STRING": "\0absent",
    "FLOATS": [math.nan],
    "INTS": [-(2**63)],
    "STRINGS": ["\0absent"],
}
"""What an attribute that is not there gives a function that asks for it. Nobody passes these."""


def function_of(calls: Sequence[tuple[Call, Body]], overload: str = "") -> ir.Function:
    """The function that gives each of these calls of one operator its body."""
    definition = calls[0][0].definition
    bodies = list(dict.fromkeys(body for _, body in calls))
    imports = {domain: version for body in bodies for domain, version in body.opset_imports.items()}
    if len(bodies) == 1:
        inputs, outputs, found = _single(bodies[0])
    else:
        _require_presence_outside(calls)
        inputs, outputs, found = _Choice(definition, calls).build()
    attributes = [_declared(item, calls) for item in definition.attributes]
    graph = ir.Graph(inputs, outputs, nodes=found, opset_imports=imports)
    function = ir.Function(definition.namespace, definition.onnx_name, overload, graph=graph, attributes=attributes)
    function.doc_string = definition.doc or None
    function.meta[FUNCTION] = True
    return function


def _declared(item: Attribute, calls: Sequence[tuple[Call, Body]]) -> ir.Attr:
    """The attribute as the function has it: with a default only if a node may lack it, so that nobody forgets to
    write it.
    """
    kind = ir.AttributeType[item.kind.onnx]
    return ir.Attr(item.name, kind, None if _is_always_there(item, calls) else _ABSENT[item.kind.onnx])


def _is_always_there(item: Attribute, calls: Sequence[tuple[Call, Body]]) -> bool:
    return all(call.attributes[item.name] is not None for call, _ in calls)


def _single(body: Body) -> tuple[list[ir.Value], list[ir.Value], list[ir.Node]]:
    """A body alone. An absent optional input keeps its place among the formal inputs, as it does on the node."""
    inputs: list[ir.Value] = []
    for item, tensors in zip(body.call.definition.inputs, body.call.inputs, strict=True):
        if item.arity == "variadic":
            inputs.extend(body.inputs[f"{item.name}_{index}"] for index in range(len(tensors)))
        else:
            inputs.append(body.inputs.get(item.name) or ir.Value(name=item.name))
    return inputs, body.outputs, [*_attribute_constants(body.call.definition.attributes, [body]), *body.nodes]


def _attribute_constants(attributes: Iterable[Attribute], bodies: Sequence[Body]) -> list[ir.Node]:
    """One Constant for each of the attributes that stays symbolic in a body; it takes its value from the node."""
    found = []
    for item in attributes:
        users = [body.symbolic[item.name] for body in bodies if item.name in body.symbolic]
        if not users:
            continue
        constant = _attribute_constant(item, item.name)
        for value in users:
            value.replace_all_uses_with(constant.outputs[0])
        found.append(constant)
    return found


def _attribute_constant(item: Attribute, name: str) -> ir.Node:
    field = {"FLOAT": "value_float", "INT": "value_int", "STRING": "value_string"}.get(item.kind.onnx)
    field = field or {"FLOATS": "value_floats", "INTS": "value_ints", "STRINGS": "value_strings"}[item.kind.onnx]
    node = ir.Node("", "Constant", [], [ir.RefAttr(field, item.name, ir.AttributeType[item.kind.onnx])])
    node.outputs[0].name = name
    return node


def _require_presence_outside(calls: Sequence[tuple[Call, Body]]) -> None:
    """What may be absent is read through Max, which has no bool."""
    definition = calls[0][0].definition
    for item in definition.inputs:
        dtypes = {call.dtypes.get(item.element.name) for call, _ in calls}
        if item.arity == "optional" and "bool" in dtypes:
            raise ExportError(
                f"{definition.name}: calls in this model need different ONNX functions, and one function cannot "
                "serve an optional input of "
                f'bool (`{item.name}`). Export with fallback="inline", which gives each call its own nodes, or '
                'with fallback="none".'
            )


class _Choice:
    """A function that asks for the facts and goes to the body of the case."""

    def __init__(self, definition: Definition, calls: Sequence[tuple[Call, Body]]) -> None:
        self.definition, self.calls = definition, calls
        self.facts, self.cases = decide(calls)
        self.bodies = [case.body for case in self.cases]
        self.nodes: list[ir.Node] = []
        self.taken: set[str] = set(definition.parameters())
        labels = dict.fromkeys(label for call, _ in calls for label, _ in call.tensors())
        self.inputs = {label: ir.Value(name=label) for label in self._formal(list(labels))}
        self.taken.update(self.inputs)
        always = [{label for label, _ in call.tensors()} for call, _ in calls]
        self.doubtful = {label for label in labels if any(label not in found for found in always)}
        asks_more = any(fact.kind in ("attribute", "rank", "sizes") for fact in self.facts)
        self.hidden = asks_more or self._ranks_differ() or any(body.static for body in self.bodies)

    def build(self) -> tuple[list[ir.Value], list[ir.Value], list[ir.Node]]:
        always = [item for item in self.definition.attributes if _is_always_there(item, self.calls)]
        self.nodes.extend(_attribute_constants(always, self.bodies))
        conditions = [self._condition(case) for case in self.cases[:-1]]
        outputs = self._choose(self.cases, conditions, self.nodes)
        names = [value.name or "" for value in self.bodies[0].outputs]
        for value, name in zip(outputs, names, strict=True):
            value.name = name
        return list(self.inputs.values()), outputs, self.nodes

    def _ranks_differ(self) -> bool:
        ranks: dict[str, set[int]] = {}
        for call, _ in self.calls:
            for label, tensor in call.tensors():
                ranks.setdefault(label, set()).add(len(tensor.sizes))
        return any(len(found) > 1 for found in ranks.values())

    def _formal(self, labels: list[str]) -> list[str]:
        """The formal inputs in order; a variadic input has as many as the longest call."""
        found: list[str] = []
        for item in self.definition.inputs:
            if item.arity == "variadic":
                found.extend(sorted((label for label in labels if _is_entry(label, item.name)), key=_entry_number))
            else:
                found.append(item.name)
        return found

    def _op(
        self, op_type: str, inputs: Sequence[ir.Value], into: list[ir.Node] | None = None, **attributes: Any
    ) -> ir.Value:
        node = ir.Node("", op_type, inputs, ir.convenience.convert_attributes(attributes))
        node.outputs[0].name = free_name(op_type.lower(), self.taken)
        (self.nodes if into is None else into).append(node)
        return node.outputs[0]

    def _constant(self, value: Any, into: list[ir.Node] | None = None, dtype: ir.DataType | None = None) -> ir.Value:
        return self._op("Constant", [], into, value=ir.tensor(value, dtype=dtype))

    # The questions. They stand outside of every branch: they hold for each call.

    def _condition(self, case: Case) -> ir.Value:
        answers = [self._all([self._is(fact, value) for fact, value in answer.items()]) for answer in case.answers]
        result = answers[0]
        for other in answers[1:]:
            result = self._op("Or", [result, other])
        return result

    def _all(self, values: Sequence[ir.Value]) -> ir.Value:
        result = values[0]
        for other in values[1:]:
            result = self._op("And", [result, other])
        return result

    def _is(self, fact: Fact, value: Any) -> ir.Value:
        match fact.kind:
            case "present":
                there = self._op("OptionalHasElement", [self.inputs[fact.name]])
                return there if value else self._op("Not", [there])
            case "count":
                return self._has_count(fact.name, value)
            case "rank":
                rank = self._op("Size", [self._op("Shape", [self.inputs[fact.name]])])
                return self._op("Equal", [rank, self._constant(value, dtype=ir.DataType.INT64)])
            case "sizes":
                return self._same_list(self._op("Shape", [self.inputs[fact.name]]), value, ir.DataType.INT64)
            case "attribute":
                return self._has_value(self.definition.attribute(fact.name), value)

    def _has_count(self, name: str, count: int) -> ir.Value:
        entries = [value for label, value in self.inputs.items() if _is_entry(label, name)]
        last = self._op("OptionalHasElement", [entries[count - 1]])
        if count == len(entries):
            return last
        return self._op("And", [last, self._op("Not", [self._op("OptionalHasElement", [entries[count]])])])

    def _has_value(self, item: Attribute, value: Any) -> ir.Value:
        node = _attribute_constant(item, free_name(f"{item.name}_value", self.taken))
        self.nodes.append(node)
        given = node.outputs[0]
        kind = {float: ir.DataType.FLOAT, int: ir.DataType.INT64, bool: ir.DataType.INT64, str: ir.DataType.STRING}[
            item.kind.element
        ]
        if value is None:
            value = _ABSENT[item.kind.onnx]
        if item.kind.is_list:
            return self._same_list(given, tuple(value), kind)
        return self._same(given, value, kind)

    def _same(self, given: ir.Value, value: Any, kind: ir.DataType) -> ir.Value:
        if kind == ir.DataType.STRING:
            return self._same_string(given, value)
        if kind == ir.DataType.FLOAT and (value == NAN or math.isnan(value)):
            return self._op("IsNaN", [given])
        return self._op(
            "Equal", [given, self._constant(int(value) if kind == ir.DataType.INT64 else value, dtype=kind)]
        )

    def _same_string(self, given: ir.Value, value: str) -> ir.Value:
        """Compares two entries of one tensor: onnx's ReferenceEvaluator takes strings of different length for
        different types.
        """
        as_list = self._op("Reshape", [given, self._constant([1], dtype=ir.DataType.INT64)])
        both = self._op("Concat", [as_list, self._op("Constant", [], value_strings=[value])], axis=0)
        first, second = (
            self._op("Gather", [both, self._constant(index, dtype=ir.DataType.INT64)], axis=0) for index in (0, 1)
        )
        return self._op("Equal", [first, second])

    def _same_list(self, given: ir.Value, value: Sequence[Any], kind: ir.DataType) -> ir.Value:
        """Whether two lists are equal: as long, and then each entry.

        The list is padded, not compared in a branch: onnxruntime reads past its end there, ahead of time, where it is
        constant.
        """
        length = self._constant(len(value), dtype=ir.DataType.INT64)
        as_long = self._op("Equal", [self._op("Size", [given]), length])
        if not value:
            return as_long
        if kind == ir.DataType.STRING:
            padding = self._op("Constant", [], value_strings=[""] * len(value))
        else:
            padding = self._constant([0] * len(value), dtype=kind)
        padded = self._op("Concat", [given, padding], axis=0)
        answers = [as_long]
        for position, entry in enumerate(value):
            index = self._constant(position, dtype=ir.DataType.INT64)
            answers.append(self._same(self._op("Gather", [padded, index], axis=0), entry, kind))
        return self._all(answers)

    # The answers. A runtime checks types and shapes in branches that are never taken, too: what they read tells
    # neither.

    def _choose(self, cases: Sequence[Case], conditions: Sequence[ir.Value], into: list[ir.Node]) -> list[ir.Value]:
        found, outputs = self._branch(cases[0].body)
        if not conditions:
            into.extend(found)
            return outputs
        otherwise: list[ir.Node] = []
        others = self._choose(cases[1:], conditions[1:], otherwise)
        return self._if(conditions[0], found, outputs, otherwise, others, into)

    def _if(
        self,
        condition: ir.Value,
        then: list[ir.Node],
        then_outputs: Sequence[ir.Value],
        otherwise: list[ir.Node],
        otherwise_outputs: Sequence[ir.Value],
        into: list[ir.Node],
    ) -> list[ir.Value]:
        branches = [
            ir.Attr(name, ir.AttributeType.GRAPH, ir.Graph([], outputs, nodes=found, name=free_name(name, self.taken)))
            for name, found, outputs in (
                ("then_branch", then, then_outputs),
                ("else_branch", otherwise, otherwise_outputs),
            )
        ]
        node = ir.Node("", "If", [condition], branches, num_outputs=len(then_outputs))
        for value, own in zip(node.outputs, then_outputs, strict=True):
            value.name = free_name(f"{own.name}", self.taken)
        into.append(node)
        return list(node.outputs)

    def _branch(self, body: Body) -> tuple[list[ir.Node], list[ir.Value]]:
        found: list[ir.Node] = []
        for label, value in body.inputs.items():
            value.replace_all_uses_with(self._read(body, label, found))
        # onnx's ReferenceEvaluator knows no defaults of a function's attributes: one that a node may lack is read
        # where it is there.
        sometimes = [item for item in self.definition.attributes if not _is_always_there(item, self.calls)]
        found.extend(_attribute_constants(sometimes, [body]))
        found.extend(body.nodes)
        for node in all_nodes(found):
            for value in node.outputs:
                value.name = free_name(value.name or "value", self.taken)
        return found, body.outputs

    def _read(self, body: Body, label: str, into: list[ir.Node]) -> ir.Value:
        """The input as a branch reads it: as it is where nothing about it is in doubt."""
        given = self.inputs[label]
        dtype = ir.DataType(BY_NAME[dict(body.call.tensors())[label].dtype].onnx)
        if label in self.doubtful:
            given = self._op("Max", [self._through_sequence(self._lowest(dtype, into), None, into), given], into)
        if self.hidden:
            other = self._constant(0, into, dtype=dtype)
            given = self._through_sequence(other, given, into)
        return given

    def _through_sequence(self, first: ir.Value, second: ir.Value | None, into: list[ir.Node]) -> ir.Value:
        """A value that has been in a sequence is not a constant to an optimizer, and beside one of another rank it
        has no shape.
        """
        found = self._op("SequenceConstruct", [first] if second is None else [first, second], into)
        index = self._constant(0 if second is None else 1, into, dtype=ir.DataType.INT64)
        return self._op("SequenceAt", [found, index], into)

    def _lowest(self, dtype: ir.DataType, into: list[ir.Node]) -> ir.Value:
        """What Max leaves the other operand as it is beside."""
        lowest = -math.inf if dtype.is_floating_point() else _lowest_integer(dtype)
        return self._constant(lowest, into, dtype=dtype)


def _lowest_integer(dtype: ir.DataType) -> int:
    return 0 if dtype.name.startswith("U") else -(1 << (int(dtype.itemsize * 8) - 1))


def _is_entry(label: str, name: str) -> bool:
    return label.startswith(f"{name}_") and label[len(name) + 1 :].isdecimal()


def _entry_number(label: str) -> int:
    return int(label.rpartition("_")[2])
