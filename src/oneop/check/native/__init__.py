"""Drives kernels outside Python: stray writes, uninitialised memory, threads, leaks, crashes; with sanitizers too."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oneop.check.cases import Case
from oneop.check.native import programs, reading, rows, running
from oneop.check.native.gradients import gradient_cases
from oneop.check.native.programs import Sanitizer
from oneop.check.results import Finding, Result
from oneop.errors import BuildError, CallError, DefinitionError

if TYPE_CHECKING:
    from oneop.operator import Operator

__all__ = ["findings", "look"]


def findings(
    operator: "Operator", cases: Sequence[Case], sanitizer: Sanitizer | None = None, *, seconds: float | None = None
) -> list[Result]:
    """One result for each row: what the kernels of an operator and of its gradient do in these calls.

    Args:
        cases: calls of the operator; those of its gradient operator may be among them, and are made of the operator's
            where they are not.
        sanitizer: ``"address"`` rebuilds the kernels with AddressSanitizer and UndefinedBehaviorSanitizer, ``"thread"``
            with ThreadSanitizer.
        seconds: how long one step may take before it counts as hanging.

    A compiler that has no sanitizers is a failure that says what to install; so is a kernel that does not compile.
    """
    begin = time.monotonic()
    wanted = rows.of(sanitizer)
    served = [case for case in [*cases, *gradient_cases(operator, cases)] if _is_served(operator, case)]
    if not served:
        return [Result(row, rows.COLUMN, "skipped", "there is no kernel in C or C++ for these calls") for row in wanted]
    try:
        launcher, program = programs.driver(), programs.driver(sanitizer)
        library = programs.kernels(operator, sanitizer)
    except BuildError as error:
        return reading.not_built(operator, wanted, error)
    log = running.run(program, launcher, library, served, sanitizer, seconds=seconds)
    return reading.results(operator, served, log, sanitizer, time.monotonic() - begin)


def look(operator: "Operator", row: str, case: Case) -> Finding | None:
    """What is wrong with one row in one call. OneopError says that there is no such row, or no kernel for the call."""
    found = {result.property: result for result in findings(operator, [case], rows.SANITIZERS.get(row))}
    if row not in found:
        known = ", ".join(map(repr, [*rows.ROWS, *rows.SANITIZERS]))
        raise DefinitionError(
            f"{operator.definition.name}: there is no row {row!r} outside Python. Choose among {known}."
        )
    if found[row].status == "skipped":
        raise CallError(f"{operator.definition.name}: {row} cannot be asked outside Python: {found[row].reason}")
    return found[row].finding


def _is_served(operator: "Operator", case: Case) -> bool:
    """Whether there is a kernel for the dtypes of a call."""
    gradient = operator.gradient_operator
    for known in (operator, gradient):
        if known is not None and known.definition.name == case.definition.name and "cpu" in known.devices:
            return case.structure.dtypes in known.kernel_spec().combinations()
    return False
