"""From what the driver said to results: one for each row, with the smallest call that shows a failure."""

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneop.check.cases import Case
from oneop.check.native import programs, rows, sanitizers
from oneop.check.native.casefile import count_of
from oneop.check.native.programs import Sanitizer
from oneop.check.native.running import Log
from oneop.check.native.values import wrong_values
from oneop.check.results import Finding, Result
from oneop.check.snippets import snippet_of
from oneop.errors import BuildError

if TYPE_CHECKING:
    from oneop.operator import Operator

Event = dict[str, Any]
_MOST_SHOWN = 2000
"""Elements: a snippet with more is nothing to paste."""

_ROW_OF_PHASE = {
    "values": rows.VALUES,
    "repeated": rows.DETERMINISM,
    "fills": rows.UNINITIALISED,
    "threads": rows.THREADS,
    "alignment": rows.ALIGNMENT,
    "callers": rows.CALLERS,
    "memory": rows.MEMORY,
}
_WHEN = {
    "repeated": "when it is called again",
    "fills": "when memory held something else before",
    "threads": "in several threads",
    "alignment": "when inputs lie at an address that only their elements' size divides",
    "callers": "when 8 threads call at once",
}


@dataclass
class _Row:
    failures: list[Finding] = field(default_factory=list)

    crashed: bool = False

    def add(self, summary: str, case: Case | None, details: str | None = None, pattern: str | None = None) -> None:
        self.failures.append(Finding(summary, case, details=details, pattern=pattern))

    def smallest(self) -> Finding:
        """The failure that is easiest to look at, with a word on the others."""
        chosen = min(self.failures, key=lambda finding: _size(finding.case))
        others = dict.fromkeys(finding.summary for finding in self.failures if finding.summary != chosen.summary)
        seen = "\n".join(["Also seen:", *(f"- {summary}" for summary in [*others][:10])]) if others else ""
        details = "\n\n".join(filter(None, [chosen.details, seen]))
        return replace(chosen, details=details or None, crashed=self.crashed)


def not_built(operator: "Operator", wanted: Sequence[str], error: BuildError) -> list[Result]:
    """A kernel or a driver that does not compile: the first row fails, and the others cannot be asked."""
    first, _, rest = str(error).partition("\n")
    finding = Finding(f"{operator.definition.name}: {first}", details=rest or None)
    return [
        Result(wanted[0], rows.COLUMN, "failed", finding=finding),
        *(Result(row, rows.COLUMN, "skipped", "the kernels could not be built") for row in wanted[1:]),
    ]


def results(
    operator: "Operator", cases: Sequence[Case], log: Log, sanitizer: Sanitizer | None, seconds: float
) -> list[Result]:
    """One result for each row of the run."""
    reader = _Reader(operator, cases, log, sanitizer)
    found = reader.read()
    shown = {row: _with_snippet(operator, row, item.smallest()) for row, item in found.items() if item.failures}
    cause = "one that did not return" if any(item["hangs"] for item in log.events("crash")) else "three crashes"
    missing = f"{log.not_run} of {len(cases)} calls were not made after {cause}" if log.not_run else None
    return [
        Result(
            row,
            rows.COLUMN,
            "failed" if row in shown else "passed",
            missing,
            shown.get(row),
            examples=len(cases) - log.not_run,
            seconds=seconds,
        )
        for row in rows.of(sanitizer)
    ]


def _with_snippet(operator: "Operator", row: str, finding: Finding) -> Finding:
    if finding.case is None or _size(finding.case) > _MOST_SHOWN:
        return finding
    return replace(finding, snippet=snippet_of(operator, rows.COLUMN, row, finding.case))


class _Reader:
    def __init__(self, operator: "Operator", cases: Sequence[Case], log: Log, sanitizer: Sanitizer | None) -> None:
        self.cases = cases
        self.log = log
        self.sanitizer = sanitizer
        gradient = operator.gradient_operator
        self.operators = {item.definition.name: item for item in (operator, gradient) if item is not None}
        self.sources = programs.sources([item for item in self.operators.values() if item.has_kernels])
        self.rows = {row: _Row() for row in rows.of(sanitizer)}

    def read(self) -> dict[str, _Row]:
        if self.sanitizer is None:
            handlers: dict[str, Callable[[Event], None]] = {
                "crash": self._crash,
                "failed": self._failed,
                "stray": self._stray,
                "changed": self._changed,
                "difference": self._difference,
                "growth": self._growth,
            }
            for item in self.log.said:
                if isinstance(item, dict) and item["event"] in handlers:
                    handlers[item["event"]](item)
            self._values()
        else:
            self._sanitizer_reports()
        return self.rows

    # ---- without a sanitizer

    def _crash(self, event: Event) -> None:
        case = self.cases[event["case"]]
        pattern = rows.HANGS if event["hangs"] else None
        self._add(rows.CRASHES, _crash_text(event) + _about_empty(event, case), case, pattern=pattern)
        self.rows[rows.CRASHES].crashed = True

    def _failed(self, event: Event) -> None:
        case, phase = self.cases[event["case"]], event["phase"]
        if phase == "values":
            return  # compared with what the reference does
        self._add(_ROW_OF_PHASE[phase], f"the kernel fails {_WHEN[phase]}: {event['message']}", case)

    def _stray(self, event: Event) -> None:
        case = self.cases[event["case"]]
        what, size = self._tensor_name(case, event), event["element"]
        at = event["distance"] - (1 if event["side"] == "before" else 0)
        unit = "bytes" if event["kind"] == "scratch" else "elements"
        where = f"{at // size} {unit} {'before the beginning' if event['side'] == 'before' else 'behind the end'}"
        self._add(rows.STRAY, f"the kernel writes {event['bytes']} bytes outside {what}, {where}", case)

    def _changed(self, event: Event) -> None:
        case = self.cases[event["case"]]
        name = self._tensor_name(case, {"kind": "input", "number": event["input"], "tensor": event["tensor"]})
        self._add(rows.INPUTS, f"the kernel changes element {event['element']} of {name}", case)

    def _difference(self, event: Event) -> None:
        case, kind = self.cases[event["case"]], event["property"]
        output = self._tensor_name(case, {"kind": "output", "number": event["output"], "tensor": event["tensor"]})
        if event["shape"]:
            what = f"{output} has another shape"
        else:
            what = (
                f"element {event['element']} of {output} is {event['first']} and then {event['second']}"
                f" ({event['elements']} elements differ)"
            )
        if kind == "fills":
            self._add(
                rows.UNINITIALISED, f"{_FILL[event['about']]}: {what}", case, pattern=_FILL_PATTERN[event["about"]]
            )
            return
        when = f"{_WHEN[kind]} ({event['about']})" if kind == "threads" else _WHEN[kind]
        self._add(_ROW_OF_PHASE[kind], f"the result differs {when}: {what}", case)

    def _growth(self, event: Event) -> None:
        case = self.cases[event["case"]]
        if event["files"]:
            text = f"{event['files']} files are left open after {event['calls']} calls"
        else:
            each = event["bytes"] / event["calls"]
            text = f"memory grows by {event['bytes']} bytes in {event['calls']} calls, {each:.0f} bytes a call"
        self._add(rows.MEMORY, text, case)

    def _values(self) -> None:
        self.rows[rows.VALUES].failures.extend(wrong_values([*self.operators.values()], self.cases, self.log))

    # ---- with one

    def _sanitizer_reports(self) -> None:
        row = rows.of(self.sanitizer)[0]
        for report in sanitizers.reports(self.log.said):
            lines = sanitizers.user_lines(report, self.sources)
            if not lines and report.kind in ("leak", "race"):
                continue  # not of these kernels: the C library's, the driver's
            case = self.cases[report.case] if report.case is not None else None
            at = f", at {' and '.join(map(_short, lines))}" if lines else ""
            details = "\n".join([*map(_quoted, lines), report.text(self.sources)])
            self._add(row, f"{self._described(report, case)}{at}", case, details)
        for event in self.log.events("crash"):
            if not any(report.case == event["case"] for report in sanitizers.reports(self.log.said)):
                self._add(row, _crash_text(event), self.cases[event["case"]])

    def _described(self, report: sanitizers.Report, case: Case | None) -> str:
        if report.kind == "leak":
            return f"the kernel leaks {report.message}"
        if report.kind == "race":
            return f"two threads meet without a lock ({report.message})"
        accesses = report.accesses()
        if report.kind == "undefined" or not accesses:
            return re.sub(r" on (?:unknown )?address 0x.*", "", report.message)
        verb, size = accesses[0]
        return f"the kernel {verb}s {size} bytes {self._where(report, case)}"

    def _where(self, report: sanitizers.Report, case: Case | None) -> str:
        place = report.place
        if place is None or case is None:
            return report.block() or f"where it may not ({report.message.split()[0]})"
        side = (
            "behind the end of" if place["behind"] else "before the beginning of" if place["distance"] < 0 else "inside"
        )
        return f"{abs(place['distance'])} bytes {side} {self._tensor_name(case, place)}"

    # ---- both

    def _tensor_name(self, case: Case, event: Event) -> str:
        if event["kind"] == "scratch":
            return f"scratch block {event['number'] + 1}"
        definition = case.definition
        if event["kind"] == "input":
            item = definition.inputs[event["number"]]
            many = item.arity == "variadic"
            return f"input `{item.name}{'[' + str(event['tensor']) + ']' if many else ''}`"
        output = definition.outputs[event["number"]]
        return f"output `{output.name}{'[' + str(event['tensor']) + ']' if count_of(case, output) > 1 else ''}`"

    def _add(
        self, row: str, text: str, case: Case | None, details: str | None = None, pattern: str | None = None
    ) -> None:
        name = case.definition.name if case is not None else next(iter(self.operators))
        self.rows[row].add(f"{name}: {text}", case, details, pattern or rows.PATTERNS.get(row))


_FILL = {
    "outputs": "the result depends on what the output's memory held before",
    "scratch": "the result depends on what scratch memory held before",
    "inputs": "the result depends on memory around the inputs, which belongs to nobody",
    "rest": "the result depends on what malloc or the stack held before",
}
_FILL_PATTERN = {
    "outputs": "An element that no branch writes, or `+=` into an output that was not set to 0.",
    "scratch": "Scratch memory is not initialised: set it before it is read.",
    "inputs": "A read beyond the end of an input, or between the elements of a strided one. --sanitize finds the line.",
    "rest": "A variable, or memory from malloc or new[], that is read before it has a value.",
}


def _crash_text(event: Event) -> str:
    when = _WHEN.get(event["phase"])
    suffix = f", {when}" if when else ""
    if event["hangs"]:
        return f"the kernel does not return within {event['seconds']:g} s{suffix}"
    if event["status"] >= 0:
        return f"the kernel ends the process with status {event['status']}{suffix}"
    return f"the kernel crashes ({signal.Signals(-event['status']).name}){suffix}"


def _about_empty(event: Event, case: Case) -> str:
    empty = [name for name, tensor in zip(case.labels, case.tensors, strict=True) if tensor.numel() == 0]
    if event["hangs"] or not empty:
        return ""
    return (
        f"; {' and '.join(f'`{name}`' for name in empty)} {'is' if len(empty) == 1 else 'are'} empty and without memory"
    )


def _size(case: Case | None) -> int:
    return sum(tensor.numel() for tensor in case.tensors) if case is not None else 0


def _quoted(line: str) -> str:
    """A line of source with its text."""
    path, _, number = line.rpartition(":")
    lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return f"{_short(line)}: {lines[int(number) - 1].strip() if 0 < int(number) <= len(lines) else ''}"


def _short(line: str) -> str:
    path, _, number = line.rpartition(":")
    return f"{Path(path).name}:{number}"
