"""Finite differences: how near they come, and where they say nothing."""

import math

import pytest
import torch

from oneop.check import diagnosis
from oneop.check.numeric import differences


def test_a_smooth_function() -> None:
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)
    found = differences(lambda tensors: torch.sin(3 * tensors[0]).sum(), [x], 0)
    assert len(found) == 9
    for item in found:
        assert item.slope == pytest.approx(3 * math.cos(3 * float(x[item.place])), abs=1e-9)
        assert item.error < 1e-6


def test_a_kink_is_left_out_and_its_neighbours_are_not() -> None:
    x = torch.tensor([-1.0, 0.0, 1e-6, 1.0], dtype=torch.float64)
    found = differences(lambda tensors: torch.relu(tensors[0]).sum(), [x], 0)
    assert [(item.place, round(item.slope, 9)) for item in found] == [(0, 0.0), (3, 1.0)]


def test_a_jump_is_left_out() -> None:
    x = torch.tensor([0.99999, 1.5], dtype=torch.float64)
    found = differences(lambda tensors: torch.floor(tensors[0]).sum(), [x], 0)
    assert [item.place for item in found] == [1]


def test_infinite_values_say_nothing() -> None:
    x = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert differences(lambda tensors: (1 / tensors[0]).sum(), [x], 0) == []


def test_some_of_many_elements() -> None:
    found = differences(lambda tensors: (tensors[0] ** 2).sum(), [torch.ones(1000, dtype=torch.float64)], 0)
    assert len(found) == 36


@pytest.mark.parametrize(
    ("got", "expected", "said"),
    [
        ([2.0, 4.0, 0.0], [1.0, 2.0, 0.0], "Every number is 2 times the right one."),
        ([1.5, 2.5, 0.5], [1.0, 2.0, 0.0], "Every number is the right one plus 0.5."),
        ([-1.0, -2.0], [1.0, 2.0], "Every number has the wrong sign."),
        ([1.0, 2.0, -1.5], [1.0, 2.0, 0.0], None),
        ([1.0 + 1e-14, 2.0, 1.5], [1.0, 2.0, 0.0], None),
    ],
)
def test_one_factor_or_one_offset_is_that_of_all_numbers(
    got: list[float], expected: list[float], said: str | None
) -> None:
    given = [torch.tensor(numbers, dtype=torch.float64) for numbers in (got, expected)]
    assert diagnosis._factor(*given) == said
