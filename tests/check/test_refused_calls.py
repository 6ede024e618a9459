"""Calls that the reference does not take reach no kernel, whatever the row: a kernel may do anything with them."""

import pytest

from oneop.check import behaviour, properties
from oneop.check.cases import Case
from oneop.check.columns import Eager, Programs
from oneop.check.drawing import sample
from oneop.check.oracle import ReferenceRefusedError
from oneop.check.session import QUICK, Clock, Session
from oneop.check.subject import subject_of

ROWS = ["no aliasing", "inputs unchanged", "determinism", "threads", "concurrent callers", "opcheck", "memory"]


class Untouched(Eager):
    """A column whose kernel must not be called."""

    def call(self, case):
        def run(inputs, attributes):
            raise AssertionError("the kernel was called")

        return run


@pytest.mark.parametrize("row", [*ROWS, *properties.COMPARISONS, *properties.SLOPES])
def test_the_reference_is_asked_first(faulty, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of(faulty("never_taken"))
    column = Untouched(subject)
    monkeypatch.setattr(behaviour, "Dispatched", Untouched)
    session = Session(subject, [column], Programs(subject), QUICK, 0)
    (case, *_) = sample(subject.space.cases(), 3, 0)
    with pytest.raises(ReferenceRefusedError, match="this reference takes nothing"):
        looked_at(session, column, row, case)


def looked_at(session: Session, column: Eager, row: str, case: Case) -> object:
    if row in properties.COMPARISONS:
        return properties.compared(session, column, row, *properties.COMPARISONS[row], case)
    if row in properties.SLOPES:
        return properties.measured(session, column, row, properties.SLOPES[row], case)
    if row == "memory":
        return behaviour.memory_of(session, column, case, Clock(0.0))
    return behaviour.LOOKS[row](session, column, row, case)
