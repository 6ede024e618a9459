"""Asks rows of `oneop check` about an operator."""

from collections.abc import Callable, Iterator, Sequence

import oneop
from campaign.faults import Fault
from oneop.check import behaviour, native, oracle, properties
from oneop.check.cases import Case
from oneop.check.columns import Column, InapplicableError, columns_of
from oneop.check.drawing import FOCUSES, Focus, Space, sample
from oneop.check.native.programs import Sanitizer
from oneop.check.properties import GENERIC, SMOOTH
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


def in_turn(seed: int) -> list[Focus]:
    """Three of the focuses: each has its turn with three seeds of eight."""
    return [FOCUSES[(seed + step) % len(FOCUSES)] for step in (0, 3, 6)]


def alarms(operator: oneop.Operator, seeds: Sequence[int]) -> tuple[int, list[str]]:
    """How often the rows that look at one call each were asked, in the eager column, and all they complain about.

    Every seed asks for values and first gradients; the other rows are asked with every fifth seed.
    """
    subject = subject_of(operator)
    columns, programs = columns_of(subject)
    eager = next(column for column in columns if column.title == EAGER)
    session = Session(subject, [eager], programs, QUICK, 0)
    looks = dict(_looks(session, eager))
    asked, found = 0, []
    for seed in seeds:
        for focus in in_turn(seed):
            for case in drawn(subject.space, [focus], [seed]):
                for row in [row for row in _rows(seed) if row in looks and (row in _ANYWHERE or focus in SMOOTH)]:
                    asked += 1
                    found += _complaints(row, looks[row], case)
        for case in drawn(subject.in_float64(), GENERIC, [seed]) if seed % 5 == 2 else []:
            for row in [row for row in _MEASURED if row in looks]:
                asked += 1
                found += _complaints(row, looks[row], case)
    programs.close()
    return asked, found


def _rows(seed: int) -> list[str]:
    others = {0: [*_BEHAVIOUR], 1: [properties.SECOND, properties.FORWARD, properties.VMAP]}
    return [properties.VALUES, properties.FIRST, *others.get(seed % 5, [])]


def _complaints(row: str, look: Look, case: Case) -> list[str]:
    finding = _finding(look, case)
    return [] if finding is None else [f"{row}: {finding.summary} ({case.describe()})"]


_MEASURED = (properties.FIRST_NUMERIC, properties.SECOND_NUMERIC, "forward mode, finite differences")
_BEHAVIOUR = {
    properties.FAKE: behaviour.fake_shapes,
    properties.ALIAS: behaviour.aliasing,
    properties.UNCHANGED: behaviour.unchanged,
    properties.DETERMINISM: behaviour.determinism,
}


_ANYWHERE = (properties.VALUES, *_BEHAVIOUR)
"""Rows that are asked of zeros, NaN and infinity too; there gradients have several right answers, or none."""


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
