"""Compares what kernels gave outside Python with the reference."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from oneop.check import oracle, transforms
from oneop.check.cases import Case
from oneop.check.native.casefile import dtypes_of, tensor_of
from oneop.check.native.running import Log
from oneop.check.results import Finding
from oneop.check.subject import Named, Subject, subject_of

if TYPE_CHECKING:
    from oneop.operator import Operator


def wrong_values(operators: "Sequence[Operator]", cases: Sequence[Case], log: Log) -> list[Finding]:
    """One finding for each call whose outputs are not what the reference gives, or that fails where it does not."""
    subjects = {item.definition.name: subject_of(item) for item in operators if not item.definition.native_only}
    messages = {event["case"]: event["message"] for event in log.events("failed") if event["phase"] == "values"}
    outputs: dict[int, list[dict[str, Any]]] = {}
    for event in log.events("output"):
        outputs.setdefault(event["case"], []).append(event)
    found = []
    for number, case in enumerate(cases):
        subject = subjects.get(case.definition.name)
        if subject is None or (number not in messages and number not in outputs):
            continue
        try:
            expected = oracle.expect(subject, transforms.values, case)
        except oracle.ReferenceRefusedError:
            continue
        if number in messages:
            text = f"the kernel fails where the reference does not: {messages[number]}"
            found.append(Finding(f"{case.definition.name}: {text}", case))
            continue
        finding = _wrong(subject, case, _named(subject, case, outputs[number], log.outputs), expected)
        if finding is not None:
            found.append(finding)
    return found


def _wrong(subject: Subject, case: Case, got: Named, expected: oracle.Expectation) -> Finding | None:
    found = oracle.mismatch(got, expected)
    if found is None:
        return None
    return Finding(
        f"{subject.definition.name}: {found.summary}",
        case,
        labels=tuple(name for name, _ in got),
        got=tuple(tensor for _, tensor in got),
        expected=tuple(item.value for item in expected.tensors),
        tolerance=tuple(item.tolerance for item in expected.tensors),
    )


def _named(subject: Subject, case: Case, events: Sequence[dict[str, Any]], data: bytes) -> Named:
    dtypes = dtypes_of(case)
    results: list[Any] = [[] for _ in case.definition.outputs]
    for event in events:
        dtype = dtypes[case.definition.outputs[event["output"]].element.name]
        raw = data[event["offset"] : event["offset"] + event["bytes"]]
        results[event["output"]].append(tensor_of(raw, event["shape"], dtype))
    for number, output in enumerate(case.definition.outputs):
        variadic = output.mirrors is not None and case.definition.input(output.mirrors).arity == "variadic"
        if not variadic:
            (results[number],) = results[number]
    if len(results) == 1:
        only = results[0]
        return subject.named(only if isinstance(only, Tensor) else (only,), case.inputs, case.attributes)
    return subject.named(results, case.inputs, case.attributes)
