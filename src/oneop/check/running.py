"""The engine of ``oneop check``: runs the properties of one operator in every column, within a time."""

import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch

from oneop.check import oracle
from oneop.check.cases import Case
from oneop.check.columns import Column, Runner, columns_of
from oneop.check.companion import Answer, Companion, Progress, Request
from oneop.check.drawing import FOCUSES, sample
from oneop.check.native import rows as native_rows
from oneop.check.properties import PROPERTIES, Property
from oneop.check.results import Finding, Report, Result
from oneop.check.session import MIXED, QUICK, THOROUGH, Clock, Effort, Outcome, Session, raised
from oneop.check.subject import Subject, subject_of
from oneop.errors import BuildError, DefinitionError
from oneop.targets.models import target_names

if TYPE_CHECKING:
    from oneop.operator import Operator

SEED = 0
CRASHED = "a kernel crashed, or did not return, in the program outside Python, so it is not called in this process"
UNBUILT = "the kernels could not be built"
NATIVE_SHARE = 0.2
"""The share of the time that the program outside Python gets."""

Sanitizer = Literal["address", "thread"]


def check(
    operator: "Operator",
    *,
    quick: bool = False,
    effort: Effort | None = None,
    seed: int = SEED,
    seconds: float | None = None,
    targets: Collection[str] | None = None,
    properties: Collection[str] | None = None,
    columns: Collection[str] | None = None,
    sanitizers: Sequence[Sanitizer] = (),
    native: bool = True,
    crashed: Callable[[], bool] | None = None,
    companion: Companion | None = None,
    on_progress: Progress | None = None,
    on_result: Callable[[Result], None] | None = None,
) -> Report:
    """What was found about one operator.

    Args:
        quick: about 10 seconds instead of 60; ``effort`` says it in detail.
        seed: decides which cases are drawn: the same seed, the same cases.
        seconds: the time, where it is to be another; it may end the drawing of cases early, never a whole property.
        targets: the columns' targets ("pytorch", "onnxruntime", ...); None stands for those that are installed. One
            that is named here and missing fails.
        properties, columns: the rows and columns that are looked at, by title; None stands for all.
        sanitizers: "address", "thread": also runs the kernels under these, in a program of their own.
        native: whether the kernels also run in a program outside Python, before they are called in this process.
        crashed: says whether they crashed there, so that they are not called here; asked before the first call.
        companion: looks at the columns of exported programs at the same time; the operator needs a file of its own.
        on_progress: called with what is being looked at, the cells done, and all cells; by one thread at a time.
        on_result: called with the result of each cell, when it is there.

    Raises DefinitionError where an example or a constraint does not fit, or there is no such row, column or target;
    or no call fits the constraints.
    """
    effort = effort or (QUICK if quick else THOROUGH)
    if seconds is not None:
        effort = replace(effort, seconds=seconds)
    subject = subject_of(operator)
    _require_satisfiable(subject, seed)
    found, programs = columns_of(subject)
    _require_known(operator, "row", properties, [item.title for item in PROPERTIES])
    _require_known(operator, "column", columns, [item.title for item in found])
    _require_known(operator, "target", targets, list(dict.fromkeys(item.target for item in found)))
    chosen = [item for item in found if columns is None or item.title in columns]
    rows = [item for item in PROPERTIES if properties is None or item.title in properties]
    session = Session(subject, chosen, programs, effort, seed)
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _Check(session, rows, targets, sanitizers, native, crashed, companion, on_progress, on_result).run()
    finally:
        torch.set_num_threads(threads)
        for column in chosen:
            column.close()
        programs.close()


def _require_satisfiable(subject: Subject, seed: int) -> None:
    """Once, before every cell looks for calls that there are not."""
    constraints = subject.operator.constraints
    if not constraints or subject.examples or sample(subject.space.cases(MIXED), 12, seed):
        return
    stated = ", ".join(f'{name}="{text}"' for name, text in constraints.items())
    raise DefinitionError(
        f"{subject.definition.name}: no call could be made up that fits the operator's constraints ({stated}) and its"
        " definition. Correct the constraint that nothing fits, or give an example of your own: @op.example."
    )


def _require_known(operator: "Operator", what: str, given: Collection[str] | None, known: Sequence[str]) -> None:
    for name in given or ():
        if name not in known:
            only = what == "target" and name in target_names()
            problem = f"models are built for {name!r}, and not run in it" if only else f"there is no {what} {name!r}"
            raise DefinitionError(f"{operator.definition.name}: {problem}. Choose among {', '.join(map(repr, known))}.")


@dataclass
class _Check:
    session: Session
    rows: Sequence[Property]
    targets: Collection[str] | None
    sanitizers: Sequence[Sanitizer]
    native: bool
    crashed: Callable[[], bool] | None
    companion: Companion | None
    on_progress: Progress | None
    on_result: Callable[[Result], None] | None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[bool, int] = {}

    def run(self) -> Report:
        begin = time.monotonic()
        cells = [(row, column) for row in self.rows for column in self.session.columns if self._is_asked_for(column)]
        others = [cell for cell in cells if self._is_for_the_companion(cell[1])]
        own = [cell for cell in cells if cell not in others]
        ways = self._ways_outside()
        unbuilt = self._unbuilt()
        if unbuilt is not None:
            return self._report(begin, self._without_kernels(cells, ways, unbuilt), ())
        seconds = self.session.effort.seconds * (1.0 - (NATIVE_SHARE if ways else 0.0))
        answer = self._ask(others, seconds, len(cells)) if others else None
        try:
            outside = self._outside(ways)
            known = any(result.finding is not None and result.finding.crashed for result in outside)
            if answer is not None:
                answer.tell(known)
            crashed = self.crashed or (lambda: known)
            looked_at = self._own(own, seconds, len(cells), crashed)
            found = {(result.property, result.column): result for result in looked_at}
            if answer is not None:
                answer.wait()
        except BaseException:
            if self.companion is not None:
                self.companion.end()  # in the middle of its answer
            raise
        notes = self._notes([column for column in self.session.columns if not self._is_for_the_companion(column)])
        if answer is not None:
            notes += answer.notes
            found |= {(row.title, column.title): self._of_the_companion(answer, row, column) for row, column in others}
        self._tell("done", len(cells), len(cells))
        results = [*outside, *(found[row.title, column.title] for row, column in cells)]
        return self._report(begin, results, notes)

    def _report(self, begin: float, results: Sequence[Result], notes: tuple[str, ...]) -> Report:
        name = self.session.subject.definition.name
        return Report(name, tuple(results), self.session.seed, time.monotonic() - begin, notes)

    def _unbuilt(self) -> Finding | None:
        """What keeps the kernels from being built, if any column needs them."""
        if not any(column.is_native for column in self.session.columns if self._is_asked_for(column)):
            return None
        return _failure(lambda: _build_kernels(self.session.subject.operator))

    def _without_kernels(
        self, cells: Sequence[tuple[Property, Column]], ways: Sequence[Sanitizer | None], unbuilt: Finding
    ) -> list[Result]:
        """Said once a column that runs kernels; nothing else is looked at."""
        outside = [row for way in ways for row in native_rows.of(way)]
        results = [Result(row, native_rows.COLUMN, "skipped", UNBUILT) for row in outside]
        failing = {column.title: unbuilt for _, column in cells if column.is_native}
        for row, column in cells:
            early = self._without_looking(row, column, failing)
            results.append(early or Result(row.title, column.title, "skipped", UNBUILT))
        return results

    def _own(
        self, cells: Sequence[tuple[Property, Column]], seconds: float, count: int, crashed: Callable[[], bool]
    ) -> Iterator[Result]:
        """The cells that this process looks at: first those that no kernel can crash. The time that builds take, and a
        slow start of the program outside Python, does not count.
        """
        end = time.monotonic() + seconds
        left = sum(row.weight for row, column in cells if self._reason(row, column) is None)
        failing: dict[str, Finding] | None = None
        for done, (row, column) in enumerate(sorted(cells, key=lambda cell: cell[1].is_native)):
            self._tell(f"{row.title}, {column.title}", done, count)
            if column.is_native and failing is None:
                begin = time.monotonic()
                failing = self._failing([one for _, one in cells if one.is_native], crashed())
                end += time.monotonic() - begin
            result = self._without_looking(row, column, failing or {})
            if result is None:
                share = (end - time.monotonic()) * row.weight / max(left, row.weight)
                left -= row.weight
                result = self._cell(row, column, Clock(time.monotonic() + max(share, 0.0)))
            if self.on_result is not None:
                self.on_result(result)
            yield result

    def _of_the_companion(self, answer: Answer, row: Property, column: Column) -> Result:
        """What is skipped is skipped, however far the companion came."""
        reason = self._reason(row, column) if answer.error is not None and column.missing() is None else None
        return Result(row.title, column.title, "skipped", reason) if reason else answer.result(row.title, column.title)

    def _is_for_the_companion(self, column: Column) -> bool:
        return self.companion is not None and column.is_exported

    def _ask(self, cells: Sequence[tuple[Property, Column]], seconds: float, count: int) -> Answer:
        assert self.companion is not None
        operator = self.session.subject.operator
        arguments = {
            "effort": replace(self.session.effort, seconds=seconds),
            "seed": self.session.seed,
            "targets": self.targets,
            "properties": [row.title for row in self.rows],
            "columns": list(dict.fromkeys(column.title for _, column in cells)),
        }
        request = Request(operator.defined_in, operator.definition.name, arguments)
        return self.companion.ask(request, lambda what, done, _: self._tell(what, done, count, is_own=False))

    def _tell(self, what: str, done: int, count: int, *, is_own: bool = True) -> None:
        """Of the cells that are done here and there."""
        with self._lock:
            self._done[is_own] = done
            if self.on_progress is not None:
                self.on_progress(what, min(sum(self._done.values()), count), count)

    def _notes(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """What a column was not run for, and the columns that are not there."""
        runners = [column for column in columns if isinstance(column, Runner)]
        notes = [f"{column.title}: not run for {note}" for column in runners for note in column.notes]
        if self.targets is None:
            missing = [(column.title, column.missing()) for column in runners]
            notes += [f"{title}: skipped, {reason}" for title, reason in missing if reason is not None]
        return tuple(notes)

    def _is_asked_for(self, column: Column) -> bool:
        """A target that is missing has no column unless it was named: then it fails."""
        if self.targets is not None:
            return column.target in self.targets
        return column.missing() is None

    def _failing(self, native: Sequence[Column], crashed: bool) -> dict[str, Finding]:
        """What fails every cell of a column of kernels, by title: that they crash, or that they do not build."""
        if crashed:
            return {column.title: Finding(CRASHED, crashed=True) for column in native}
        found: dict[str, Finding] = {}
        for column in dict.fromkeys(native):
            unbuilt = _failure(column.prepare) if column.missing() is None and column.unfit() is None else None
            if unbuilt is not None:
                found[column.title] = unbuilt
        return found

    def _ways_outside(self) -> list[Sanitizer | None]:
        """How the kernels run in a program outside Python: as they are, under each sanitizer."""
        is_called_here = any(column.is_native for column in self.session.columns if self._is_asked_for(column))
        return [*([None] if self.native and is_called_here else []), *self.sanitizers]

    def _outside(self, ways: Sequence[Sanitizer | None]) -> list[Result]:
        """What the kernels do in a program outside Python, where a crash takes nothing with it."""
        operator = self.session.subject.operator
        if not operator.has_kernels:
            return [
                Result(row, native_rows.COLUMN, "skipped", "the operator has no kernels")
                for sanitizer in self.sanitizers
                for row in native_rows.of(sanitizer)
            ]
        if not ways:
            return []
        from oneop.check.native import findings

        cases = _driven(self.session)
        found: list[Result] = []
        for way in ways:
            self._tell("kernels outside Python" + (f", {way}" if way else ""), 0, 1)
            found.extend(findings(operator, cases, way))
        return found

    def _reason(self, row: Property, column: Column) -> str | None:
        return column.unfit() or row.reason(self.session.subject, column)

    def _without_looking(self, row: Property, column: Column, failing: dict[str, Finding]) -> Result | None:
        missing = column.missing()
        if missing is not None:
            return Result(row.title, column.title, "failed", finding=Finding(missing))
        reason = self._reason(row, column)
        if reason is not None:
            return Result(row.title, column.title, "skipped", reason)
        if column.title in failing:
            return Result(row.title, column.title, "failed", finding=failing[column.title])
        return None

    def _cell(self, row: Property, column: Column, clock: Clock) -> Result:
        begin = time.monotonic()
        outcome = row.run(self.session, column, clock)
        seconds = time.monotonic() - begin
        if outcome.finding is not None:
            finding = replace(outcome.finding, explain=None)
            if finding.snippet is None and finding.case is not None:
                from oneop.check.snippets import snippet

                finding = replace(finding, snippet=snippet(self.session, column, row.title, finding.case))
            return Result(row.title, column.title, "failed", None, finding, outcome.examples, seconds)
        if outcome.examples == 0:
            return self._nothing(row, column, outcome, seconds)
        return Result(row.title, column.title, "passed", None, None, outcome.examples, seconds)

    def _nothing(self, row: Property, column: Column, outcome: Outcome, seconds: float) -> Result:
        """No case could be looked at: that is not a pass."""
        if outcome.inapplicable and not outcome.refusals:
            return Result(row.title, column.title, "skipped", outcome.inapplicable[0], None, 0, seconds)
        said = f" The reference says: {_sentence(outcome.refusals[0])}" if outcome.refusals else ""
        finding = Finding(
            f"no call could be made up that the reference takes.{said} Say which values it takes, with"
            ' @op.example(index="0 <= index < n") or an example of your own.'
        )
        return Result(row.title, column.title, "failed", None, finding, 0, seconds)


def _build_kernels(operator: "Operator") -> None:
    from oneop.targets.pytorch import native

    for one in (operator, operator.gradient_operator):
        if one is not None and one.has_kernels:
            native.prepare(one)


def _failure(build: Callable[[], object]) -> Finding | None:
    try:
        build()
    except BuildError as error:
        return raised(error, None)
    return None


def _sentence(text: str) -> str:
    """The first line of a message, with an end."""
    first = next(iter(text.strip().splitlines()), "no message")
    return first if first.endswith((".", "!", "?")) else f"{first}."


def _driven(session: Session) -> list[Case]:
    """Calls for the program outside Python: some of each focus, which the reference takes."""
    subject = session.subject
    count = max(4, session.effort.cases // 4)
    found = list(subject.examples)
    for focus in FOCUSES:
        found.extend(sample(subject.space.cases(focus), count, session.seed))
    return [case for case in found if _is_taken(subject, case)]


def _is_taken(subject: Subject, case: Case) -> bool:
    try:
        oracle.require_taken(subject, case)
    except oracle.ReferenceRefusedError:
        return False
    return True
