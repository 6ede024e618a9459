"""Puts the fallbacks of a traced model in place: functions beside the nodes, or nodes in place of them; and the
fingerprints.
"""

import graphlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir
from onnx_ir.passes import common

from oneop.errors import ExportError
from oneop.targets.onnx import plugins, repairing, schemas
from oneop.targets.onnx.bodies import Body, body_of
from oneop.targets.onnx.calls import INPUTS, MARK, Call, Mark
from oneop.targets.onnx.functions import FUNCTION, function_of

OLDEST_OPSET = 18
"""What torch writes by itself. For less it converts the model, and loses what is known of its nodes."""


_ZEROS = "oneop_negative_zeros"
"""An attribute that a node has while torch's optimizer runs."""


def complete(model: ir.Model) -> None:
    """Finishes every node of oneop's that the model has; a model without one, or a finished one, stays as it is."""
    marked = _marked(model)
    if not marked:
        return
    fallback = marked[0][1].fallback
    calls = [(node, mark.call) for node, mark in marked]
    if fallback != "none":
        library = _Library(model.opset_imports[""])
        calls = library.take(calls)
        if fallback == "function":
            _add_functions(model, library)
        else:
            _inline(model, library)
    for node, call in calls:
        del node.meta[MARK]
        count = call.input_count
        if fallback == "none":
            plugins.add_attributes(node, call)
            count = plugins.input_count(call)
        node.meta[INPUTS] = count
        node.resize_inputs(count)
    for call in {call.definition.name: call for _, call in calls}.values():
        model.metadata_props[f"oneop.fingerprint.{call.definition.name}"] = call.definition.fingerprint
        if fallback != "inline":
            model.opset_imports.setdefault(call.definition.namespace, schemas.VERSION)


def require_version(model: ir.Model, opset_version: int) -> None:
    """Raises ExportError for an opset version that the model's nodes of oneop's cannot have."""
    marked = _marked(model)
    if marked and opset_version < OLDEST_OPSET:
        raise ExportError(
            f"{marked[0][1].call.definition.name}: it cannot be exported with opset_version={opset_version}. "
            f"Export with {OLDEST_OPSET} or newer, or leave opset_version out."
        )


def protect(model: ir.Model) -> None:
    """Has nodes that differ in the sign of a zero differ in more: the optimizer would make them one."""
    for node in _nodes(model):
        zeros = [name for name, item in node.attributes.items() if _has_negative_zero(item)]
        if zeros and (MARK in node.meta or INPUTS in node.meta):
            node.attributes.add(ir.AttrStrings(_ZEROS, zeros))


def restore(model: ir.Model) -> None:
    """Puts back what torch's optimizer drops: the absent inputs at the end of finished nodes, and some constants."""
    repairing.restore_constants(model)
    for node in _nodes(model):
        node.attributes.pop(_ZEROS, None)
        if INPUTS in node.meta:
            node.resize_inputs(node.meta[INPUTS])


def _has_negative_zero(attribute: ir.Attr) -> bool:
    if attribute.is_ref() or attribute.type not in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
        return False
    values = [attribute.value] if attribute.type == ir.AttributeType.FLOAT else attribute.value
    return any(value == 0.0 and math.copysign(1.0, value) < 0 for value in values)


def functions_of(model: ir.Model) -> list[ir.Function]:
    """The functions that complete has put into a model."""
    return [function for function in model.functions.values() if function.meta.get(FUNCTION)]


def _marked(model: ir.Model) -> list[tuple[ir.Node, Mark]]:
    return [(node, node.meta[MARK]) for node in _nodes(model) if node.meta.get(MARK) and node.meta[MARK].fallback]


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)


class _Library:
    """The bodies that the calls of a model need; calls that need the same share it."""

    def __init__(self, opset_version: int) -> None:
        self.opset_version = opset_version
        self.uses: list[tuple[ir.Node, Call, Body]] = []
        self._traced: dict[Any, Body] = {}
        self._by_text: dict[tuple[str, bytes], Body] = {}

    def take(self, calls: list[tuple[ir.Node, Call]]) -> list[tuple[ir.Node, Call]]:
        """Takes in the calls, and those in their bodies. Returns all of them."""
        pending, every = list(calls), []
        while pending:
            node, call = pending.pop(0)
            body, is_new = self._body(call)
            self.uses.append((node, call, body))
            every.append((node, call))
            if is_new:
                pending.extend(body.calls())
        return every

    def _body(self, call: Call) -> tuple[Body, bool]:
        for floats in (False, True):
            known = self._traced.get(_key(call, floats))
            if known is not None and (floats or set(known.symbolic) == set(_floats(call))):
                return known, False
        traced = body_of(call, self.opset_version)
        body = self._by_text.setdefault((call.definition.name, traced.text), traced)
        everything_symbolic = set(traced.symbolic) == set(_floats(call))
        self._traced[_key(call, not everything_symbolic)] = body
        return body, body is traced


def _floats(call: Call) -> list[str]:
    return [
        item.name
        for item in call.definition.attributes
        if item.kind.name == "float" and call.attributes[item.name] is not None
    ]


def _key(call: Call, floats: bool) -> Any:
    """What a body may depend on. Sizes are in it: a reference that fails with free sizes is traced with these."""
    attributes = {
        item.name: repr(call.attributes[item.name])
        for item in call.definition.attributes
        if floats or item.kind.name != "float" or call.attributes[item.name] is None
    }
    return call.definition.name, call.inputs, tuple(attributes.items())


def _add_functions(model: ir.Model, library: _Library) -> None:
    by_operator: dict[tuple[str, str], list[tuple[Call, Body]]] = {}
    for _, call, body in library.uses:
        by_operator.setdefault(call.identifier, []).append((call, body))
    for identifier in _inner_first(by_operator):
        _add(model, function_of(by_operator[identifier]))


def _inner_first(by_operator: Mapping[tuple[str, str], list[tuple[Call, Body]]]) -> Iterator[tuple[str, str]]:
    """An operator that another's body calls comes before it: onnx's ReferenceEvaluator knows the functions it has
    seen.
    """
    order = graphlib.TopologicalSorter(
        {
            identifier: {inner.identifier for _, body in uses for _, inner in body.calls()}
            for identifier, uses in by_operator.items()
        }
    )
    yield from order.static_order()


def _inline(model: ir.Model, library: _Library) -> None:
    """Here each body is a function of its own while it is inlined, so nothing has to be decided when the model runs."""
    overloads: dict[Body, str] = {}
    for node, call, body in library.uses:
        if body not in overloads:
            overloads[body] = f"body_{len(overloads)}"
            _add(model, function_of([(call, body)], overloads[body]))
        node.overload = overloads[body]
    known = set(model.graph.all_nodes())
    common.InlinePass(lambda function: bool(function.meta.get(FUNCTION)))(model)
    repairing.state_constants(model.graph, known)
    domains = {call.definition.namespace for _, call, _ in library.uses}
    for domain in domains - {node.domain for node in _nodes(model)}:
        model.opset_imports.pop(domain, None)


def _add(model: ir.Model, function: ir.Function) -> None:
    model.functions[function.identifier()] = function
    for domain, version in function.opset_imports.items():
        model.opset_imports.setdefault(domain, version)
