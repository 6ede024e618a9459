"""One property of one call, as the snippets of a failure ask for it."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from oneop.check import behaviour, native
from oneop.check.cases import Case
from oneop.check.columns import Column, InapplicableError, columns_of
from oneop.check.examples import case_of
from oneop.check.native import rows
from oneop.check.oracle import ReferenceRefusedError
from oneop.check.properties import COMPARISONS, FORWARD, PROPERTIES, SLOPES, along, compared, measured
from oneop.check.results import Finding
from oneop.check.session import QUICK, Clock, Session, raised
from oneop.check.subject import subject_of
from oneop.errors import CallError, DefinitionError

if TYPE_CHECKING:
    from oneop.operator import Operator


def look(
    operator: "Operator",
    title: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    *,
    column: str,
    seed: int,
) -> Finding | None:
    """What is wrong with one property in one call. Raises OneopError where the call says nothing about it."""
    name = operator.definition.name
    if column == rows.COLUMN:
        case = case_of(
            operator,
            subject_of(operator).constraints,
            *operator._arguments(list(inputs), dict(attributes)),
            where=f"{name}: the call",
            origin="drawn",
        )
        return native.look(operator, title, case)
    if title not in [item.title for item in PROPERTIES]:
        raise DefinitionError(f"{name}: there is no property {title!r}. Choose among {_titles()}.")
    subject = subject_of(operator)
    found, programs = columns_of(subject)
    chosen = [item for item in found if item.title == column]
    if not chosen:
        known = ", ".join(repr(item.title) for item in found)
        raise DefinitionError(f"{name}: there is no column {column!r}. Choose among {known}.")
    given = operator._arguments(list(inputs), dict(attributes))
    case = case_of(operator, subject.constraints, *given, where=f"{name}: the call", origin="drawn")
    session = Session(subject, chosen, programs, QUICK, 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _look(session, chosen[0], title, replace(case, seed=seed))
    except ReferenceRefusedError as error:
        raise CallError(f"{name}: the reference does not take this call: {error}") from error
    except InapplicableError as error:
        raise CallError(f"{name}: {column} does not take this call: {error}") from error
    finally:
        chosen[0].close()
        programs.close()


def _look(session: Session, column: Column, title: str, case: Case) -> Finding | None:
    try:
        if title in COMPARISONS:
            found = compared(session, column, title, *COMPARISONS[title], case)
            is_measured_too = title == FORWARD and found is None and _is_in_float64(case)
            return along(session, column, case) if is_measured_too else found
        if title in SLOPES:
            return measured(session, column, title, SLOPES[title], case)
        if title == "memory":
            return behaviour.memory_of(session, column, case, Clock(float("inf")))
        return behaviour.LOOKS[title](session, column, title, case)
    except (ReferenceRefusedError, InapplicableError):
        raise
    except Exception as error:
        return raised(error, case)


def _is_in_float64(case: Case) -> bool:
    """Finite differences need its digits."""
    floating = [tensor for tensor in case.tensors if tensor.dtype.is_floating_point]
    return bool(floating) and all(tensor.dtype == torch.float64 for tensor in floating)


def _titles() -> str:
    return ", ".join(repr(item.title) for item in PROPERTIES)
