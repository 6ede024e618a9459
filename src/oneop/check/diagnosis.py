"""What a pattern of wrong numbers usually means, tried out on the failing call."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oneop.check import oracle
from oneop.check.cases import Case
from oneop.check.subject import Named, Subject
from oneop.check.transforms import Transform, gradient, second_gradient, values

if TYPE_CHECKING:
    from oneop.check.columns import Column

LEAST_TELLING = 4
"""A result of fewer elements shows no pattern."""

_SIZES = "The annotation of the output gives other sizes than the kernel or the reference. Correct one of them."
_BEHAVIOUR = {
    "no aliasing": "An output is a view of an input: whoever changes one changes the other. Write to fresh memory.",
    "inputs unchanged": (
        "The kernel works in place, or writes through a pointer whose const was cast away. Write to the output only."
    ),
    "determinism": (
        "The answer depends on what stood in memory before (a sum that does not start at 0, an element that no branch"
        " writes, a read behind the end), on the order of threads, or on a state that outlives the call."
    ),
    "threads": "Pieces of parallel_for write to the same place, or need another piece to have run before.",
    "concurrent callers": "Calls share memory: a static or global buffer. Keep it in the call, with ctx.scratch.",
    "memory": "Memory from malloc or new that is not given back, or a list that grows with every call.",
    "fake shapes": _SIZES,
    "shapes in the file": _SIZES,
    "opcheck": "torch.compile and torch.export rely on what is wrong here. The message is of torch.library.opcheck.",
}


def of_behaviour(title: str) -> str | None:
    return _BEHAVIOUR.get(title)


def of_slopes(title: str, computed: Tensor, numeric: Tensor) -> str | None:
    """What the numbers of a gradient say that is not the slope of the values."""
    known = ~numeric.isnan()
    got, expected = computed[known], numeric[known]
    form = _factor(got, expected)
    if form is not None:
        return f"{form} {_place(title)} has a factor too many, or one that is missing."
    if bool((got == 0).all()):
        return f"All of it is 0: {_place(title)} leaves this input out, or detaches it."
    return None


def usual_slopes(subject: Subject, title: str) -> str:
    """What is said of a gradient where the numbers say nothing."""
    if title.startswith("second") and subject.operator.gradient_operator is not None:
        return (
            "The second gradient is derived from the body of the gradient function: a `.detach()`, a constant that was"
            " computed from an input, or a wrong term in it shows up here."
        )
    return f"A term of {_place(title)} is missing or wrong."


def _place(title: str) -> str:
    return "the derivative of the gradient's body" if title.startswith("second") else "the gradient's formula or kernel"


def explain(
    subject: Subject,
    column: "Column",
    transform: Transform,
    case: Case,
    got: Named,
    wanted: oracle.Expectation,
    found: oracle.Mismatch,
) -> str | None:
    """The first explanation that the numbers bear out; None where none does."""
    if found.place is None:
        return (
            "Sizes and dtypes of the outputs follow from the annotations. Correct those, the reference or the kernel."
        )
    for text in _tried(subject, column, transform, case, got, wanted, found):
        return text
    return None


def _tried(
    subject: Subject,
    column: "Column",
    transform: Transform,
    case: Case,
    got: Named,
    wanted: oracle.Expectation,
    found: oracle.Mismatch,
) -> Iterator[str]:
    yield from _in_place(subject, column, transform, case)
    yield from _unstable(subject, column, transform, case, got)
    yield from _other_attributes(subject, transform, case, got)
    yield from _absent_inputs(subject, transform, case, got)
    yield from _layouts(subject, column, transform, case)
    yield from _transposed(subject, transform, case, got)
    expected = wanted.tensors[found.index]
    yield from _shape_of_error(got[found.index][1], expected, case)


def _in_place(subject: Subject, column: "Column", transform: Transform, case: Case) -> Iterator[str]:
    """The call changes its inputs."""
    given = case.copied()
    try:
        transform(subject, column.call(given), given)
    except Exception:
        return
    for label, before, after in zip(case.labels, case.tensors, given.tensors, strict=True):
        if not bool(((before == after) | (before.isnan() & after.isnan())).all()):
            yield f"The call changes its input {label}. {_BEHAVIOUR['inputs unchanged']}"
            return


def _unstable(subject: Subject, column: "Column", transform: Transform, case: Case, got: Named) -> Iterator[str]:
    """Another call gives other numbers."""
    poison = [torch.full((64,), float("nan")) for _ in range(8)]
    del poison
    try:
        again = transform(subject, column.call(case), case.copied())
    except Exception:
        return
    if any(not _same(a, b) for (_, a), (_, b) in zip(got, again, strict=False)):
        yield (
            "The same call gives other numbers the next time: memory that was never written (a sum that does not start"
            " at 0, an element that no branch writes), a read behind the end of an input, or threads in a race."
        )


def _other_attributes(subject: Subject, transform: Transform, case: Case, got: Named) -> Iterator[str]:
    """The numbers are those of the reference with an attribute at its default, or at another common value."""
    for item in case.definition.attributes:
        value = case.attributes[item.name]
        default = list(item.default) if isinstance(item.default, tuple) else item.default
        if (
            not item.is_required
            and value != default
            and _is_right(subject, transform, case, got, **{item.name: default})
        ):
            yield (
                f"These are the numbers for {item.name}={default!r}, the default, instead of {value!r}: the attribute"
                " is dropped on the way, or the kernel does not use it."
            )
        telling = sum(tensor.numel() for _, tensor in got) >= LEAST_TELLING  # one number is that of many mistakes
        if telling and item.kind.element is float and not item.kind.is_list and isinstance(value, float):
            for other in (1.0, 0.0, -value, float(int(value))):
                if other != value and _is_right(subject, transform, case, got, **{item.name: other}):
                    yield (
                        f"These are the numbers for {item.name}={other!r} instead of {value!r}: the kernel does not use"
                        " it as it is."
                    )
    floats = [a.name for a in case.definition.attributes if a.kind.element is float and not a.kind.is_list]
    for left, right in pairwise(floats):
        if case.attributes[left] == case.attributes[right]:
            continue
        swapped = {left: case.attributes[right], right: case.attributes[left]}
        if _is_right(subject, transform, case, got, **swapped):
            yield f"These are the numbers with {left} and {right} exchanged."


def _absent_inputs(subject: Subject, transform: Transform, case: Case, got: Named) -> Iterator[str]:
    for place, item in enumerate(case.definition.inputs):
        if item.arity == "optional" and case.inputs[place] is not None and not case.definition.is_gradient:
            without = replace(case, inputs=tuple(None if i == place else v for i, v in enumerate(case.inputs)))
            if transform is values and _right(subject, transform, without, got):
                yield f"These are the numbers without the optional input {item.name}: it is given, and not used."


def _layouts(subject: Subject, column: "Column", transform: Transform, case: Case) -> Iterator[str]:
    """The same numbers laid out afresh give the right answer, and as they lay they do not."""
    others = []
    if case.strided:
        labels = dict(zip(case.labels, case.tensors, strict=True))
        shown = ", ".join(f"{label} has strides {tuple(labels[label].stride())}" for label in case.strided)
        others.append(
            (
                case.contiguous(),
                f"The same numbers in contiguous memory give the right answer ({shown}): the kernel reads a view as if"
                " it were contiguous. Index with the strides of the view, as in a.x(i, j).",
            )
        )
    if transform in (gradient, second_gradient) and column.differentiates:
        others.append(
            (
                replace(case, plain_gradients=True),
                "With the same incoming gradient in contiguous memory the answer is right, and here it is a view or has"
                " stride 0, as the gradient of a sum does: the kernel reads it as if it were contiguous.",
            )
        )
    for other, text in others:
        # The failing call is asked again: a state that outlives a call may have been what made it wrong.
        if _comes_out(subject, column, transform, other) is True and (
            _comes_out(subject, column, transform, case) is False
        ):
            yield text


def _comes_out(subject: Subject, column: "Column", transform: Transform, case: Case) -> bool | None:
    """Whether a call with inputs of its own comes out right; None where it does not come out at all."""
    try:
        wanted = oracle.expect(subject, transform, case.copied(), float32_attributes=column.float32_attributes)
        given = case.copied()
        return oracle.mismatch(transform(subject, column.call(given), given), wanted) is None
    except Exception:
        return None


def _transposed(subject: Subject, transform: Transform, case: Case, got: Named) -> Iterator[str]:
    """The numbers are those for an input whose last two dimensions are exchanged, or are the right ones exchanged."""
    for place, (label, tensor) in enumerate(zip(case.labels, case.tensors, strict=True)):
        if tensor.ndim < 2:
            continue
        rows, columns = tensor.shape[-2:]
        # A square one is transposed; another one is read with the sizes exchanged.
        other = tensor.mT if rows == columns else tensor.contiguous().view(*tensor.shape[:-2], columns, rows).mT
        if rows > 1 and columns > 1 and not torch.equal(other, tensor):
            tensors = [other if index == place else one for index, one in enumerate(case.tensors)]
            if _right(subject, transform, case.with_inputs(tensors), got):
                yield f"These are the numbers for {label} transposed: its two indices are exchanged."


def _shape_of_error(got: Tensor, expected: oracle.Expected, case: Case) -> Iterator[str]:
    """What the place and the size of the errors look like."""
    wrong = oracle.wrong_elements(got, expected)
    value = expected.value
    if got.ndim >= 2 and got.shape[-1] == got.shape[-2] and _near(got.mT, value) and not _near(got, value):
        yield "The output is transposed: its two indices are exchanged when it is written."
        return
    if bool((value.isnan() & ~got.isnan() & wrong).any()) if got.dtype.is_floating_point else False:
        yield (
            "A NaN is lost: a comparison with NaN is false, so a maximum, a clamp or a branch passes it over. Test with"
            " std::isnan, or turn the comparison around."
        )
        return
    if got.dtype.is_floating_point:
        form = _factor(got.double()[wrong], value[wrong]) if bool(wrong.all()) else None
        if form is not None:
            yield form
        if bool(wrong.all()) and got.dtype == torch.float64:
            relative = ((got - value).abs() / value.abs().clamp_min(1e-300)).max()
            if 1e-10 < float(relative) < 1e-5:
                yield "The error is that of float32: something on the way is a float where the inputs are double."
        if bool((got[wrong] == 0).all()) and bool((value[wrong] != 0).all()) and not bool(wrong.all()):
            yield from _edge(wrong, "0, and was never written or skipped")
    if not bool(wrong.all()):
        yield from _edge(wrong, "wrong")
    if bool(wrong.any()) and got.numel() > 1:
        for dim in range(got.ndim):
            for shift in (1, -1):
                if got.shape[dim] > 1 and _near(got.double().roll(shift, dim), value):
                    yield f"The output is shifted by one along dimension {dim}: an index is off by one."


def _edge(wrong: Tensor, what: str) -> Iterator[str]:
    """Only the first or the last index of a dimension is wrong."""
    for dim in range(wrong.ndim):
        size = wrong.shape[dim]
        if size < 3:  # of two, one is the half of them and no edge
            continue
        others = wrong.movedim(dim, 0)
        if not bool(others[:-1].any()):
            yield (
                f"Only the last index of dimension {dim} is {what}: a loop ends one too early, or a remainder (of a"
                " vector, a block or a thread's piece) is left out."
            )
            return
        if not bool(others[1:].any()):
            yield f"Only the first index of dimension {dim} is {what}: a loop begins one too late."
            return


def _factor(got: Tensor, expected: Tensor) -> str | None:
    """Whether all numbers are the right ones times the same number, or plus the same number."""
    finite = expected.isfinite() & got.isfinite()
    got, expected = got[finite], expected[finite]
    if len(got) < 2:
        return None
    nothing = 1e-9 * float(torch.maximum(got.abs(), expected.abs()).max())
    usable = expected.abs() > nothing
    if int(usable.sum()) < 2:
        return _offset(got, expected, nothing)
    ratios = got[usable] / expected[usable]
    ratio = float(ratios.median())
    is_one = bool(((ratios - ratio).abs() < 1e-5 * max(abs(ratio), 1e-3)).all())
    if is_one and bool((got[~usable].abs() <= nothing).all()) and abs(ratio - 1) > 1e-7 and ratio != 0:
        if abs(ratio + 1) < 1e-6:
            return "Every number has the wrong sign."
        return f"Every number is {ratio:.6g} times the right one."
    return _offset(got, expected, nothing)


def _offset(got: Tensor, expected: Tensor, nothing: float) -> str | None:
    offsets = got - expected
    offset = float(offsets.median())
    if abs(offset) > nothing and bool(((offsets - offset).abs() < 1e-5 * max(abs(offset), 1e-6)).all()):
        return f"Every number is the right one plus {offset:.6g}."
    return None


def _is_right(subject: Subject, transform: Transform, case: Case, got: Named, **attributes: object) -> bool:
    return _right(subject, transform, replace(case, attributes={**case.attributes, **attributes}), got)


def _right(subject: Subject, transform: Transform, case: Case, got: Named) -> bool:
    """Whether the numbers are right for another call."""
    try:
        return oracle.mismatch(got, oracle.expect(subject, transform, case)) is None
    except Exception:
        return False


def _near(got: Tensor, value: Tensor) -> bool:
    return bool(torch.allclose(got.double(), value.double(), rtol=1e-4, atol=1e-6, equal_nan=True))


def _same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and _near(left, right)
