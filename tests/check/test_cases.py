"""The calls that are made up: what they cover, and that a seed decides them."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import oneop
from oneop.check import transforms
from oneop.check.drawing import FOCUSES, Focus, sample, smallest
from oneop.check.layouts import LAYOUTS
from oneop.check.subject import same_bits, subject_of


@oneop.op("cases::many")
def many(
    x: Float[Tensor, "*batch n"],
    weight: Float[Tensor, "2*n+k k"] | None = None,
    counts: Int64[Tensor, "*batch"] | None = None,
    *,
    alpha: float = 1.0,
    axis: int = 1,
    words: list[str] = ("a",),
    limit: float | None = None,
) -> Float[Tensor, "*batch n"]:
    return alpha * x


def drawn(count: int = 60, seed: int = 0) -> list[Any]:
    space = subject_of(many).space
    return [case for focus in FOCUSES for case in sample(space.cases(focus), count, seed)]


def test_sizes_dtypes_layouts_absent_inputs_and_attributes_all_occur() -> None:
    cases = drawn()
    sizes = {size for case in cases for size in case.sizes.values()}
    assert {0, 1, 2, 3, 5, 17} <= sizes
    assert max(sizes) > 1000
    assert {str(case.inputs[0].dtype) for case in cases} == {"torch.float32", "torch.float64"}
    assert {made.layout for case in cases for made in case.made.values()} == set(LAYOUTS)
    assert {case.inputs[0].ndim for case in cases} == {1, 2, 3}
    for place in (1, 2):
        assert {case.inputs[place] is None for case in cases} == {True, False}
    assert {None, 2.0, 0.0, 1e3} <= {case.attributes["limit"] for case in cases}
    assert {0, 1, 7} <= {case.attributes["axis"] for case in cases}
    tensors = [case.inputs[0] for case in cases]
    assert any(bool(tensor.isnan().any()) for tensor in tensors)
    assert any(bool((tensor == torch.inf).any()) for tensor in tensors)
    assert any(bool((tensor == -torch.inf).any()) for tensor in tensors)


def test_a_seed_decides_the_calls() -> None:
    first, again, other = drawn(12), drawn(12), drawn(12, seed=1)
    assert [case.describe() for case in first] == [case.describe() for case in again]
    for left, right in zip(first, again, strict=True):
        assert all(
            same_bits(a, b) and a.stride() == b.stride() for a, b in zip(left.tensors, right.tensors, strict=True)
        )
    assert [case.describe() for case in first] != [case.describe() for case in other]


def test_a_failing_call_is_made_small() -> None:
    space = subject_of(many).space

    def fails(case: Any) -> bool:
        return case.sizes["n"] >= 3 and case.attributes["alpha"] != 1.0

    found = smallest(space.cases(Focus(sizes=("small", "odd"))), fails, 200, 0)
    assert found is not None
    assert found.describe() == "x float32[3]; weight absent; counts absent; alpha=2.0; axis=1; words=['a']; limit=None"


def test_nothing_fails() -> None:
    assert smallest(subject_of(many).space.cases(), lambda case: False, 20, 0) is None


def test_the_layouts_code_is_what_they_do() -> None:
    x = torch.arange(6.0).view(2, 3)
    for layout in LAYOUTS.values():
        made, again = layout.apply(x), eval(layout.code.format(x="x"), {"x": x, "torch": torch})
        assert made.stride() == again.stride()
        assert same_bits(made, again)
        assert made.shape == x.shape


def test_each_input_is_at_times_the_only_one_whose_gradient_is_asked_for(faulty) -> None:
    space = subject_of(faulty("right")).space
    case = sample(space.cases(), 1, 0)[0]
    wanted = [transforms.choice(replace(case, seed=seed), 3).wanted for seed in range(1, 200)]
    assert {(0,), (1,), (2,), (0, 1, 2)} <= set(wanted)
    assert min(wanted.count((place,)) for place in range(3)) >= 10
