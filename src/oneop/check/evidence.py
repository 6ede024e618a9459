"""Makes findings: the numbers side by side, what the pattern means, and the snippet that shows it again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oneop.check import diagnosis, oracle, snippets
from oneop.check.cases import Case
from oneop.check.numeric import Difference
from oneop.check.results import Finding
from oneop.check.subject import Named
from oneop.check.transforms import Transform

if TYPE_CHECKING:
    from oneop.check.columns import Column
    from oneop.check.session import Session


def of_mismatch(
    session: "Session",
    column: "Column",
    title: str,
    transform: Transform,
    case: Case,
    got: Named,
    wanted: oracle.Expectation,
    found: oracle.Mismatch,
    *,
    prefix: str = "",
) -> Finding:
    """A result that is not the reference's."""
    expected = wanted.tensors
    index = min(found.index, len(expected) - 1)
    tolerance = expected[index].tolerance if found.place is not None else None
    return Finding(
        prefix + found.summary,
        case,
        labels=(found.name,),
        got=(got[index][1].detach(),) if index < len(got) else (),
        expected=(expected[index].value.to(expected[index].own.dtype),),
        tolerance=() if tolerance is None else (tolerance,),
        explain=lambda: diagnosis.explain(session.subject, column, transform, case, got, wanted, found),
        snippet=snippets.snippet(session, column, title, case),
    )


def of_slopes(
    session: "Session",
    column: "Column",
    title: str,
    case: Case,
    labels: Sequence[str],
    given: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    slopes: Sequence[Difference],
) -> Finding | None:
    """None where each gradient is the slope that was measured."""
    numeric = [torch.full(tuple(tensor.shape), torch.nan, dtype=torch.float64) for tensor in given]
    computed = [
        torch.zeros(tuple(tensor.shape), dtype=torch.float64) if grad is None else grad.detach().double()
        for grad, tensor in zip(gradients, given, strict=True)
    ]
    worst: tuple[float, Difference] | None = None
    # What rounding leaves of the largest slope is in the others too.
    floor = 1e-9 * max((abs(item.slope) for item in slopes), default=0.0)
    for item in slopes:
        numeric[item.tensor].view(-1)[item.place] = item.slope
        value = float(computed[item.tensor].flatten()[item.place])
        allowed = 1e-6 * max(abs(item.slope), abs(value)) + 10 * item.error + floor + 1e-9
        excess = abs(value - item.slope) / allowed if value == value else float("inf")
        if excess > 1 and (worst is None or excess > worst[0]):
            worst = (excess, item)
    if worst is None:
        return None
    item = worst[1]
    value = float(computed[item.tensor].flatten()[item.place])
    place = [int(i) for i in torch.unravel_index(torch.tensor(item.place), given[item.tensor].shape)]
    what = f"gradient by {labels[item.tensor]}" + (f" at {place}" if place else "")
    return Finding(
        f"the {what} is {oracle.number(value)}, and the measured slope {oracle.number(item.slope)}",
        case,
        labels=(f"gradient by {labels[item.tensor]}",),
        got=(computed[item.tensor],),
        expected=(numeric[item.tensor],),
        pattern=diagnosis.usual_slopes(session.subject, title),
        explain=lambda: diagnosis.of_slopes(title, computed[item.tensor], numeric[item.tensor]),
        snippet=snippets.snippet(session, column, title, case),
    )


def plain(
    session: "Session",
    column: "Column",
    title: str,
    case: Case,
    summary: str,
    *,
    also: Case | None = None,
    details: str | None = None,
) -> Finding:
    """A failure that is no number."""
    return Finding(
        summary,
        case,
        pattern=diagnosis.of_behaviour(title),
        snippet=snippets.snippet(session, column, title, also or case),
        details=details,
    )


def differing(
    session: "Session",
    column: "Column",
    title: str,
    case: Case,
    name: str,
    known: Tensor,
    found: Tensor,
    summary: str,
    *,
    also: Case | None = None,
) -> Finding:
    """Two results of which one is wrong."""
    return Finding(
        summary,
        case,
        labels=(name,),
        got=(found.detach().clone(),),
        expected=(known.detach().clone(),),
        pattern=diagnosis.of_behaviour(title),
        snippet=snippets.snippet(session, column, title, also or case),
    )
