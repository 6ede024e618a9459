"""Asks one row of `oneop check` about an operator."""

from collections.abc import Sequence

from campaign.faults import Fault

import oneop
from oneop.check import native
from oneop.check.cases import Case
from oneop.check.drawing import FOCUSES, sample
from oneop.check.native.programs import Sanitizer
from oneop.check.results import Result
from oneop.check.running import check
from oneop.check.subject import subject_of

EAGER = "PyTorch eager"
SANITIZERS: dict[str, Sanitizer | None] = {"outside Python": None, "--sanitize": "address", "--threads": "thread"}
HANGING_SECONDS = 2.0


def ask(operator: oneop.Operator, fault: Fault) -> list[Result]:
    """The results of the fault's row: one for each column that was asked."""
    if fault.way in SANITIZERS:
        found = outside_python(operator, cases_of(operator, range(1), 4), SANITIZERS[fault.way])
        return [result for result in found if result.property == fault.row]
    column = fault.way.removeprefix("here, in ") if fault.way != "here" else EAGER
    return list(check(operator, quick=True, native=False, properties=[fault.row], columns=[column]).results)


def cases_of(operator: oneop.Operator, seeds: Sequence[int], count: int) -> list[Case]:
    """Calls of every focus that `oneop check` has, so many for each seed, and the operator's examples."""
    subject = subject_of(operator)
    drawn = [case for seed in seeds for focus in FOCUSES for case in sample(subject.space.cases(focus), count, seed)]
    return [*drawn, *subject.examples]


def outside_python(operator: oneop.Operator, cases: Sequence[Case], sanitizer: Sanitizer | None = None) -> list[Result]:
    return native.findings(operator, cases, sanitizer, seconds=HANGING_SECONDS * (1 if sanitizer is None else 20))
