"""What a check found: one result for each property and column, and the evidence of each failure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from oneop.check.cases import Case

Status = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Finding:
    """One failure: the smallest case that shows it, and what a person needs to find its cause.

    Attributes:
        summary: what is wrong, in one line.
        case: the call that shows it; None where no call was reached.
        labels: what each pair of ``got`` and ``expected`` is: an output's name, or an input whose gradient it is.
        got, expected: tensors, side by side; empty where the failure is no number.
        tolerance: how far each element of ``got`` may be from ``expected``, where that was the question.
        pattern: what a failure like this usually means; None where nothing is known.
        snippet: Python that shows the failure again: it raises AssertionError, or the error that was found.
        details: further evidence as text, such as a sanitizer's report or a runtime's message.
        crashed: the kernel ended the process that ran it, so it must not be called in this one.
        explain: looks for the pattern; done once, for the case that is shown and, where that is too small to tell, for
            larger ones that fail too. ``pattern`` is what is said where it finds none.
    """

    summary: str
    case: Case | None = None
    labels: tuple[str, ...] = ()
    got: tuple[Any, ...] = ()
    expected: tuple[Any, ...] = ()
    tolerance: tuple[Any, ...] = ()
    pattern: str | None = None
    snippet: str | None = None
    details: str | None = None
    crashed: bool = False
    explain: "Callable[[], str | None] | None" = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Result:
    """One cell of the table. ``reason`` says why it was skipped, or what a passed cell could not cover."""

    property: str
    column: str
    status: Status
    reason: str | None = None
    finding: Finding | None = None
    examples: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """Everything that was found about one operator."""

    operator: str
    results: tuple[Result, ...]
    seed: int
    seconds: float
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.status == "failed")

    @property
    def properties(self) -> tuple[str, ...]:
        return _unique(result.property for result in self.results)

    @property
    def columns(self) -> tuple[str, ...]:
        return _unique(result.column for result in self.results)

    def result(self, property: str, column: str) -> Result | None:
        """The cell of a row and a column; None where the property has none there."""
        found: Sequence[Result] = [r for r in self.results if r.property == property and r.column == column]
        return found[0] if found else None


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
