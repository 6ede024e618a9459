"""Asks rows of `oneop check` about an operator."""

from collections.abc import Callable, Iterator, Sequence

from campaign.faults import Fault

import oneop
from oneop.check import behaviour, native, oracle, properties
from oneop.check.cases import Case
from oneop.check.columns import Column, InapplicableError, columns_of
from oneop.check.drawing import FOCUSES, Focus, Space, sample
from oneop.check.native.programs import Sanitizer
from oneop.check.results import Finding, Result
from oneop.check.running import check
from oneop.check.session import QUICK, Session
from oneop.check.subject import Subject, subject_of
from oneop.check.transforms import NothingToDifferentiateError

EAGER = "PyTorch eager"
SANITIZERS: dict[str, Sanitizer | None] = {"outside Python": None, "--sanitize": "address", "--threads": "thread"}
HANGING_SECONDS = 3.0

Look = Callable[[Case], Finding | None]


def ask(operator: oneop.Operator, fault: Fault) -> list[Result]:
    """The results of the fault's row."""
    if fault.way in SANITIZERS:
        subject = subject_of(operator)
        cases = [*drawn(subject.space, FOCUSES, range(6)), *subject.examples]
        found = outside_python(operator, cases, SANITIZERS[fault.way])
        return [result for result in found if result.property == fault.row]
    column = fault.way.removeprefix("here, in ") if fault.way != "here" else EAGER
    return list(check(operator, quick=True, native=False, properties=[fault.row], columns=[column]).results)


def outside_python(operator: oneop.Operator, cases: Sequence[Case], sanitizer: Sanitizer | None = None) -> list[Result]:
    return native.findings(operator, cases, sanitizer, seconds=HANGING_SECONDS * (1 if sanitizer is None else 20))


def drawn(space: Space, focuses: Sequence[Focus], seeds: Sequence[int]) -> list[Case]:
    """One call of each focus for each seed: the third that hypothesis makes. The first two are no chance: the simplest
    call, and one of another corner, much the same for every seed.
    """
    return [case for seed in seeds for focus in focuses for case in sample(space.cases(focus), 3, seed)[2:]]


def alarms(operator: oneop.Operator, seeds: Sequence[int]) -> tuple[int, list[str]]:
    """How often the rows that look at one call each were asked, in the eager column, and all they complain about.

    Every seed asks for values and first gradients; of the other rows each is asked with every second seed.
    """
    subject = subject_of(operator)
    columns, programs = columns_of(subject)
    eager = next(column for column in columns if column.title == EAGER)
    session = Session(subject, [eager], programs, QUICK, 0)
    asked, found = 0, []
    for seed in seeds:
        cases = drawn(subject.space, FOCUSES, [seed])
        wide = drawn(subject.in_float64(), properties.GENERIC, [seed]) if seed % 2 else []
        for row, look in _looks(session, eager):
            if row not in _ALWAYS and (row in _BEHAVIOUR) == bool(seed % 2):
                continue
            for case in wide if row in _MEASURED else cases:
                finding = _finding(look, case)
                asked += 1
                if finding is not None:
                    found.append(f"{row}: {finding.summary} ({case.describe()})")
    programs.close()
    return asked, found


_ALWAYS = (properties.VALUES, properties.FIRST)
_MEASURED = (properties.FIRST_NUMERIC, properties.SECOND_NUMERIC, "forward mode, finite differences")
_BEHAVIOUR = {
    properties.FAKE: behaviour.fake_shapes,
    properties.ALIAS: behaviour.aliasing,
    properties.UNCHANGED: behaviour.unchanged,
    properties.DETERMINISM: behaviour.determinism,
}


def _looks(session: Session, column: Column) -> Iterator[tuple[str, Look]]:
    """The rows, as functions of one call."""
    subject = session.subject
    for row, (transform, expected) in properties.COMPARISONS.items():
        if _applies(row, subject, column):
            yield (
                row,
                lambda case, row=row, transform=transform, expected=expected: properties.compared(
                    session, column, row, transform, expected, case
                ),
            )
    for row, order in properties.SLOPES.items():
        if _applies(row, subject, column):
            yield row, lambda case, row=row, order=order: properties.measured(session, column, row, order, case)
            if order == 1:
                yield _MEASURED[2], lambda case: properties.along(session, column, case)
    for row, behave in _BEHAVIOUR.items():
        yield row, lambda case, row=row, behave=behave: behave(session, column, row, case)


def _applies(row: str, subject: Subject, column: Column) -> bool:
    found = next(item for item in properties.PROPERTIES if item.title == row)
    return found.reason(subject, column) is None


def _finding(look: Look, case: Case) -> Finding | None:
    try:
        return look(case)
    except (oracle.ReferenceRefusedError, InapplicableError, NothingToDifferentiateError):
        return None
