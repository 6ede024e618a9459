"""By which facts the calls of one operator are told apart, where they need different bodies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oneop.errors import ExportError
from oneop.targets.onnx.bodies import Body
from oneop.targets.onnx.calls import Call
from oneop.targets.onnx.nodes import float32

Kind = Literal["present", "count", "attribute", "rank", "sizes"]
NAN = "nan"
"""Stands for a NaN among facts: it is equal to itself."""


@dataclass(frozen=True)
class Fact:
    """Something that a function can ask of its node: ``name`` is an input, one tensor of it, or an attribute."""

    kind: Kind
    name: str


@dataclass
class Case:
    """A body, and the facts that lead to it: one of ``answers`` is true of each call that needs it."""

    body: Body
    answers: list[dict[Fact, Any]]


def decide(calls: Sequence[tuple[Call, Body]]) -> tuple[list[Fact], list[Case]]:
    """The fewest facts that tell the bodies apart, and for each body the facts of its calls."""
    facts = [_facts(call) for call, _ in calls]
    chosen: list[Fact] = []
    for fact in sorted(
        dict.fromkeys(fact for found in facts for fact in found), key=lambda fact: _is_doubtful(fact, calls)
    ):
        if any(fact not in found for found in facts):
            continue
        if _separates(fact, chosen, facts, calls):
            chosen.append(fact)
    _require_apart(chosen, facts, calls)
    cases: dict[int, Case] = {}
    for found, (_, body) in zip(facts, calls, strict=True):
        answer = {fact: found[fact] for fact in chosen}
        answers = cases.setdefault(id(body), Case(body, [])).answers
        if answer not in answers:
            answers.append(answer)
    return chosen, list(cases.values())


def _is_doubtful(fact: Fact, calls: Sequence[tuple[Call, Body]]) -> bool:
    """Whether it asks for an attribute that some node lacks, which onnx's ReferenceEvaluator cannot answer."""
    return fact.kind == "attribute" and any(call.attributes[fact.name] is None for call, _ in calls)


def _facts(call: Call) -> dict[Fact, Any]:
    """What can be asked, the simplest first. What only some calls have an answer to is no question for all."""
    found: dict[Fact, Any] = {}
    for item, tensors in zip(call.definition.inputs, call.inputs, strict=True):
        if item.arity == "optional":
            found[Fact("present", item.name)] = bool(tensors)
        elif item.arity == "variadic":
            found[Fact("count", item.name)] = len(tensors)
    for attribute in call.definition.attributes:
        value = call.attributes[attribute.name]
        found[Fact("attribute", attribute.name)] = _answer(attribute.kind.element is float, value)
    for label, tensor in call.tensors():
        found[Fact("rank", label)] = len(tensor.sizes)
    for label, tensor in call.tensors():
        if None not in tensor.sizes:
            found[Fact("sizes", label)] = tensor.sizes
    return found


def _answer(is_float: bool, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_answer(is_float, entry) for entry in value)
    if not is_float or value is None:
        return value
    return NAN if math.isnan(value) else float32(float(value))


def _separates(
    fact: Fact, chosen: list[Fact], facts: list[dict[Fact, Any]], calls: Sequence[tuple[Call, Body]]
) -> bool:
    return any(facts[i][fact] != facts[j][fact] for i, j in _confused(chosen, facts, calls))


def _confused(
    chosen: list[Fact], facts: list[dict[Fact, Any]], calls: Sequence[tuple[Call, Body]]
) -> list[tuple[int, int]]:
    """The pairs of calls that need different bodies and look the same."""
    return [
        (i, j)
        for i in range(len(calls))
        for j in range(i)
        if calls[i][1] is not calls[j][1] and all(facts[i][fact] == facts[j][fact] for fact in chosen)
    ]


def _require_apart(chosen: list[Fact], facts: list[dict[Fact, Any]], calls: Sequence[tuple[Call, Body]]) -> None:
    confused = _confused(chosen, facts, calls)
    if not confused:
        return
    first, second = calls[confused[0][1]][0], calls[confused[0][0]][0]
    reason = (
        f"the dtypes ({_dtypes(first)} and {_dtypes(second)})"
        if first.dtypes != second.dtypes
        else "the sizes of the inputs"
    )
    raise ExportError(
        f"{first.definition.name}: two calls in this model need different ONNX functions because of {reason}, and "
        "one function cannot "
        'tell them apart. Export with fallback="inline", which gives each call its own nodes, or with fallback="none".'
    )


def _dtypes(call: Call) -> str:
    return ", ".join(f"{element} {dtype}" for element, dtype in call.dtypes.items())
