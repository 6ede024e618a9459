"""The rows of the table: what has to hold of an operator, and how one cell of a row is looked at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from oneop.check import behaviour, evidence, numeric, oracle, transforms
from oneop.check.cases import Case
from oneop.check.columns import COMPILED, EAGER, EXPORTED, Column, Runner
from oneop.check.drawing import FOCUSES, ORDINARY, TYPICAL, Focus
from oneop.check.layouts import LAYOUTS
from oneop.check.results import Finding
from oneop.check.session import LONG, Clock, Outcome, Session, search
from oneop.check.subject import Call, Subject

Reason = Callable[[Subject, Column], str | None]
Run = Callable[[Session, Column, Clock], Outcome]


@dataclass(frozen=True)
class Property:
    """One row. ``reason`` says why a cell is skipped; ``weight`` is its share of the time."""

    title: str
    run: Run
    reason: Reason
    weight: float = 1.0


SMOOTH = tuple(focus for focus in FOCUSES if "special" not in focus.styles and "zeros" not in focus.styles)
"""Where gradients are compared: at zeros many functions have none, or several."""
GENERIC = (
    Focus("generic", styles=("random",)),
    Focus("generic, many layouts", styles=("random",), layouts=tuple(LAYOUTS)),
    Focus("generic, size 1", styles=("random",), sizes=("one", "small")),
)
"""Where finite differences are taken."""


def _never(subject: Subject, column: Column) -> str | None:
    return None


def _needs_reference(subject: Subject, column: Column) -> str | None:
    return None if subject.has_reference else "there is no reference to compare with (native_only=True)"


def _no_gradients(subject: Subject, column: Column) -> str | None:
    if not subject.is_differentiable:
        return "no input or no output is floating"
    if not subject.has_reference and subject.operator.gradient_operator is None:
        return "there is neither a gradient nor a reference to derive it from"
    return None if column.differentiates else f"{column.title} computes no gradients"


def _first_reference(subject: Subject, column: Column) -> str | None:
    return _needs_reference(subject, column) or _no_gradients(subject, column)


def _second_reference(subject: Subject, column: Column) -> str | None:
    if column.title == COMPILED and column.differentiates:
        return "torch.compile does not differentiate twice"
    return _first_reference(subject, column)


def _numeric(subject: Subject, column: Column) -> str | None:
    missing = _no_gradients(subject, column)
    if missing is not None:
        return missing
    if column.title != EAGER:
        return "measured in the eager column"
    return None if subject.admits_float64 else "float64 is not admitted, and finite differences need its digits"


def _numeric_second(subject: Subject, column: Column) -> str | None:
    return _numeric(subject, column) or _needs_reference(subject, column)


def _forward(subject: Subject, column: Column) -> str | None:
    missing = _first_reference(subject, column)
    if missing is not None:
        return missing
    return None if column.title == EAGER else "forward mode differentiates the reference, in the eager column"


def _vmap(subject: Subject, column: Column) -> str | None:
    if column.title != EAGER:
        return "torch.func.vmap maps the eager operator"
    if subject.unknown_sizes:
        return "sizes that only the values decide (`?`) differ among the elements"
    return _needs_reference(subject, column)


def _only_eager(what: str) -> Reason:
    return lambda subject, column: None if column.title == EAGER else what


def _fake(subject: Subject, column: Column) -> str | None:
    if isinstance(column, Runner):
        return "fake tensors are PyTorch's"
    return None if column.title != COMPILED else "compiled with the fake kernel that the other columns compare"


def _in_file(subject: Subject, column: Column) -> str | None:
    return None if isinstance(column, Runner) else "there is no file"


def _alias(subject: Subject, column: Column) -> str | None:
    return "its results are arrays of its own" if isinstance(column, Runner) else None


def _callers(subject: Subject, column: Column) -> str | None:
    if column.title in (COMPILED, EXPORTED):
        return "compiled and exported code calls the operator as the eager column does"
    if isinstance(column, Runner) and not column.is_native:
        return "no kernel of the operator runs"
    return None


def _agrees(
    title: str,
    transform: transforms.Transform,
    focuses: Sequence[Focus],
    *,
    expected: transforms.Transform | None = None,
    share: float = 1.0,
) -> Run:
    """A cell that compares a transform of the column's calls with that of the reference."""

    def run(session: Session, column: Column, clock: Clock) -> Outcome:
        def examine(case: Case) -> Finding | None:
            return compared(session, column, title, transform, expected, case)

        return search(session, column, examine, clock, focuses=focuses, share=share)

    return run


def compared(
    session: Session,
    column: Column,
    title: str,
    transform: transforms.Transform,
    expected: transforms.Transform | None,
    case: Case,
) -> Finding | None:
    """One case of a comparison with the reference."""
    subject = session.subject
    wanted = oracle.expect(
        subject,
        transform,
        case,
        reference_transform=expected,
        float32_attributes=column.float32_attributes,
    )
    try:
        # In memory of its own: a kernel that changes its inputs must not change the call that is looked at.
        got = transform(subject, column.call(case), case.copied())
    except Exception as error:
        if expected is not None and _also_fails(subject, transform, case, wanted):
            raise oracle.ReferenceRefusedError(str(error)) from error
        raise
    found = oracle.mismatch(got, wanted)
    return None if found is None else evidence.of_mismatch(session, column, title, transform, case, got, wanted, found)


def _also_fails(subject: Subject, transform: transforms.Transform, case: Case, wanted: oracle.Expectation) -> bool:
    """Whether torch cannot do this to the reference either, as with vmap of an index of no elements."""
    try:
        return oracle.mismatch(transform(subject, subject.reference, case), wanted) is not None
    except Exception:
        return True


def _slopes(title: str, order: int) -> Run:
    """A cell that compares gradients with finite differences, in float64."""

    def run(session: Session, column: Column, clock: Clock) -> Outcome:
        def examine(case: Case) -> Finding | None:
            return measured(session, column, title, order, case)

        space = session.subject.in_float64()
        return search(session, column, examine, clock, focuses=GENERIC, space=space, share=0.35)

    return run


def measured(session: Session, column: Column, title: str, order: int, case: Case) -> Finding | None:
    """One case: the gradient (or the gradient of a weighted sum of gradients), and the slopes of what it is of."""
    subject = session.subject
    case = case.contiguous()
    oracle.require_taken(subject, case)
    call = column.call(case)
    places = [place for place, tensor in enumerate(case.tensors) if tensor.dtype.is_floating_point]
    if not places:
        raise transforms.NothingToDifferentiateError
    given = [case.tensors[place].detach() for place in places]
    labels = [case.labels[place] for place in places]
    if order == 1:
        function = _weighted(subject, call, case, places)
    else:
        function, extra = _weighted_gradient(subject, call, case, places)
        given = [*given, *extra]
        labels = [*labels, *(f"incoming gradient {index}" for index in range(1, len(extra) + 1))]
    leaves = [tensor.clone().requires_grad_() for tensor in given]
    total = function(leaves)
    gradients = torch.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else [None for _ in leaves]
    slopes = numeric.differences(lambda tensors: function(tensors).detach(), given, case.seed)
    return evidence.of_slopes(session, column, title, case, labels, given, list(gradients), slopes)


def _forward_cell(session: Session, column: Column, clock: Clock) -> Outcome:
    """Tangents as the reference's, and as they are measured: what both differentiate may hide a part."""
    agreed = _agrees(FORWARD, transforms.forward_mode, SMOOTH, share=0.3)(session, column, clock)
    if agreed.finding is not None or not session.subject.admits_float64:
        return agreed
    space = session.subject.in_float64()
    found = search(
        session, column, lambda case: along(session, column, case), clock, focuses=GENERIC, space=space, share=0.2
    )
    return replace(agreed, examples=agreed.examples + found.examples, finding=found.finding)


def along(session: Session, column: Column, case: Case) -> Finding | None:
    """One case in float64: the tangent of a weighted sum of the outputs, and its slope in that direction."""
    subject = session.subject
    case = case.contiguous()
    oracle.require_taken(subject, case)
    places = [place for place, tensor in enumerate(case.tensors) if tensor.dtype.is_floating_point]
    if not places:
        raise transforms.NothingToDifferentiateError
    given = [case.tensors[place].detach() for place in places]
    direction = [transforms.incoming(tensor, case.seed + index).clone() for index, tensor in enumerate(given)]
    function = _weighted(subject, column.call(case), case, places)
    _, tangent = torch.func.jvp(lambda *tensors: function(tensors), tuple(given), tuple(direction))  # type: ignore[misc]

    def moved(step: list[Tensor]) -> Tensor:
        return function([tensor + step[0][0] * way for tensor, way in zip(given, direction, strict=True)]).detach()

    begin = torch.zeros(1, dtype=torch.float64)
    slopes = numeric.differences(moved, [begin], case.seed)
    return evidence.of_slopes(session, column, FORWARD, case, ["one direction"], [begin], [tangent.view(1)], slopes)


def _weighted(subject: Subject, call: Call, case: Case, places: Sequence[int]) -> Callable[[Sequence[Tensor]], Tensor]:
    """The sum of the floating outputs, each element with a weight of its own."""

    def function(tensors: Sequence[Tensor]) -> Tensor:
        outputs = [tensor for _, tensor in transforms.floating(subject, call, case, places, tensors)]
        if not outputs:
            raise transforms.NothingToDifferentiateError
        total = torch.zeros((), dtype=torch.float64)
        for index, output in enumerate(outputs):
            total = total + (transforms.incoming(output, case.seed + index) * output).sum()
        return total

    return function


def _weighted_gradient(
    subject: Subject, call: Call, case: Case, places: Sequence[int]
) -> tuple[Callable[[Sequence[Tensor]], Tensor], list[Tensor]]:
    """The sum of the first gradients, each element with a weight of its own; and the incoming gradients, which it is a
    function of too.
    """
    given = [case.tensors[place].detach() for place in places]
    outputs = [tensor for _, tensor in transforms.floating(subject, call, case, places, given)]
    if not outputs:
        raise transforms.NothingToDifferentiateError
    incoming = [transforms.incoming(output, case.seed + index).clone() for index, output in enumerate(outputs)]

    def function(tensors: Sequence[Tensor]) -> Tensor:
        inputs, cotangents = list(tensors[: len(places)]), list(tensors[len(places) :])
        leaves = [tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in inputs]
        results = [tensor for _, tensor in transforms.floating(subject, call, case, places, leaves)]
        kept = [(out, cotangent) for out, cotangent in zip(results, cotangents, strict=True) if out.requires_grad]
        total = torch.zeros((), dtype=torch.float64)
        if not kept:
            return total
        first = torch.autograd.grad(
            [out for out, _ in kept], leaves, [c for _, c in kept], create_graph=True, allow_unused=True
        )
        for index, grad in enumerate(first):
            if grad is not None:
                total = total + (transforms.incoming(grad, case.seed + 7 + index) * grad).sum()
        return total

    return function, incoming


VALUES = "values"
FIRST_NUMERIC = "first gradient, finite differences"
FIRST = "first gradient, reference"
SECOND_NUMERIC = "second gradient, finite differences"
SECOND = "second gradient, reference"
FORWARD = "forward mode"
VMAP = "vmap"
FAKE = "fake shapes"
FILE = "shapes in the file"
ALIAS = "no aliasing"
UNCHANGED = "inputs unchanged"
DETERMINISM = "determinism"
THREADS = "threads"
CALLERS = "concurrent callers"
MEMORY = "memory"
OPCHECK = "opcheck"

COMPARISONS: dict[str, tuple[transforms.Transform, transforms.Transform | None]] = {
    VALUES: (transforms.values, None),
    FIRST: (transforms.gradient, None),
    SECOND: (transforms.second_gradient, None),
    FORWARD: (transforms.forward_mode, None),
    VMAP: (transforms.mapped, transforms.looped),
}
"""The rows that compare a transform with the reference: the column's, and the reference's where that is another."""

SLOPES = {FIRST_NUMERIC: 1, SECOND_NUMERIC: 2}

PROPERTIES: tuple[Property, ...] = (
    Property(VALUES, _agrees(VALUES, transforms.values, (*FOCUSES, LONG)), _needs_reference, 3),
    Property(FIRST_NUMERIC, _slopes(FIRST_NUMERIC, 1), _numeric, 2),
    Property(FIRST, _agrees(FIRST, transforms.gradient, SMOOTH, share=0.5), _first_reference, 2),
    Property(SECOND_NUMERIC, _slopes(SECOND_NUMERIC, 2), _numeric_second, 2),
    Property(SECOND, _agrees(SECOND, transforms.second_gradient, SMOOTH, share=0.35), _second_reference, 2),
    Property(FORWARD, _forward_cell, _forward),
    Property(VMAP, _agrees(VMAP, transforms.mapped, SMOOTH, expected=transforms.looped, share=0.3), _vmap),
    Property(FAKE, behaviour.cell(FAKE, behaviour.fake_shapes, (ORDINARY, *FOCUSES[1:3])), _fake, 0.5),
    Property(FILE, behaviour.cell(FILE, behaviour.file_shapes, (ORDINARY, *FOCUSES[1:3])), _in_file, 0.5),
    Property(ALIAS, behaviour.cell(ALIAS, behaviour.aliasing, (ORDINARY, *FOCUSES[1:3])), _alias, 0.3),
    Property(UNCHANGED, behaviour.cell(UNCHANGED, behaviour.unchanged, FOCUSES), _never, 0.3),
    Property(DETERMINISM, behaviour.cell(DETERMINISM, behaviour.determinism, FOCUSES), _never, 0.5),
    Property(THREADS, behaviour.cell(THREADS, behaviour.threads, behaviour.PIECES, share=0.15), _never, 0.7),
    Property(CALLERS, behaviour.callers_cell, _callers, 0.7),
    Property(MEMORY, behaviour.memory_cell, _never, 1),
    Property(
        OPCHECK,
        behaviour.cell(OPCHECK, behaviour.opcheck, (TYPICAL, ORDINARY), share=0.05),
        _only_eager("torch.library.opcheck looks at the eager operator"),
    ),
)
