"""Value constraints: how they are written, what they admit, and what a mistake in one says."""

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

import oneop
from oneop.check.constraints import Bounds, Constraints
from oneop.check.drawing import FOCUSES, sample
from oneop.check.subject import subject_of
from oneop.errors import DefinitionError


@oneop.op("constraints::pick")
def pick(
    x: Float[Tensor, "n m"], index: Int[Tensor, "k"], *, scale: float = 1.0, count: int = 2
) -> Float[Tensor, "k m"]:
    return scale * x[index.long()]


def read(**given: str) -> Constraints:
    constraints = Constraints(pick.definition)
    constraints.add(given)
    return constraints


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 <= index < n", Bounds(0, False, 5, True)),
        ("n > index >= 0", Bounds(0, False, 5, True)),
        ("index <= min(n, 2*m) - 1", Bounds(None, False, 4, False)),
        ("positive", Bounds(0, True)),
        ("1 <= index, index < n, 2 < index", Bounds(2, True, 5, True)),
        ("sorted, unique", Bounds(words=frozenset({"sorted", "unique"}))),
    ],
)
def test_bounds(text: str, expected: Bounds) -> None:
    found = read(index=text).bounds("index", {"n": 5, "m": 3})
    assert (found.low, found.low_strict, found.high, found.high_strict) == (
        expected.low,
        expected.low_strict,
        expected.high,
        expected.high_strict,
    )
    assert found.words >= expected.words


def test_a_bound_whose_name_has_no_value_binds_nothing() -> None:
    assert read(index="0 <= index < n").bounds("index", {}) == Bounds(0, False)


GRAMMAR = (
    'Write comparisons with the name in them ("0 <= index < n"), the words positive, nonnegative, nonzero, finite,'
    " sorted, unique, or several of these with commas between."
)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"indx": "positive"},
            (
                "constraints::pick: a constraint is given for `indx`, which is no input, attribute or dimension of the"
                " operator. Name one of x, index, scale, count, n, m, k."
            ),
        ),
        (
            {"index": "ascending"},
            'constraints::pick: the constraint "ascending" of `index` cannot be read at `ascending`. ' + GRAMMAR,
        ),
        (
            {"index": "0 <= index != n"},
            'constraints::pick: the constraint "0 <= index != n" of `index` cannot be read at `0 <= index != n`. '
            + GRAMMAR,
        ),
        (
            {"index": "0 <= n"},
            'constraints::pick: the constraint "0 <= n" of `index` cannot be read at `0 <= n`. ' + GRAMMAR,
        ),
        (
            {"index": "index < rows"},
            (
                'constraints::pick: the constraint "index < rows" of `index` names `rows`, which is no dimension and no'
                " number among the attributes. Name one of n, m, k, scale, count."
            ),
        ),
        ({"index": 3}, "constraints::pick: the constraint of `index` is a int. " + GRAMMAR),
    ],
)
def test_mistakes(given, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        read(**given)
    assert str(caught.value) == message


def test_code_in_a_constraint_is_not_run() -> None:
    with pytest.raises(DefinitionError, match="cannot be read"):
        read(index="index < __import__('os').getpid()")
    with pytest.raises(DefinitionError, match="names `print`"):
        read(index="index < print(1)")


@pytest.mark.parametrize(
    ("text", "value", "broken"),
    [
        ("0 <= index < n", [0, 4], None),
        ("0 <= index < n", [0, 5], 'it holds 5; its constraint is "0 <= index < n", with n = 5'),
        ("sorted", [1, 1, 3], None),
        ("sorted", [3, 1], 'it is not sorted; its constraint is "sorted"'),
        ("unique", [3, 1, 3], 'it holds the same value twice; its constraint is "unique"'),
        ("nonzero", [0], 'it holds 0; its constraint is "nonzero"'),
    ],
)
def test_violations(text: str, value: list[int], broken: str | None) -> None:
    assert read(index=text).violation("index", torch.tensor(value), {"n": 5}) == broken


def test_a_nan_is_within_no_bounds() -> None:
    assert (
        read(x="positive").violation("x", torch.tensor([torch.nan]), {}) == 'it holds nan; its constraint is "positive"'
    )


def test_drawn_calls_satisfy_them() -> None:
    @oneop.op("constraints::several")
    def several(
        index: Int[Tensor, "k"],
        order: Int[Tensor, "n"],
        x: Float[Tensor, "n"],
        p: Float[Tensor, "n"],
        *,
        power: int = 3,
    ) -> Float[Tensor, "n"]:
        return x**power * p

    several.example(
        index="0 <= index < n",
        order="sorted, unique, -4 <= order < 40",
        x="positive",
        p="0 <= p <= 1",
        power="2 <= power <= k",
    )
    subject = subject_of(several)
    seen = 0
    for focus in FOCUSES:
        for case in sample(subject.space.cases(focus), 15, 0):
            scope = {**case.attributes, **case.sizes}
            for item, value in zip(subject.definition.inputs, case.inputs, strict=True):
                assert subject.constraints.violation(item.name, value, scope) is None
            assert 2 <= case.attributes["power"] <= case.sizes["k"]
            seen += 1
    assert seen > 60
