"""The pytest plugin: a fixture, its options, and what a failing test shows."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TEST = """
import torch
import oneop
from jaxtyping import Float
from torch import Tensor

@oneop.op("plugged::{name}")
def {name}(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x * x

@{name}.gradient
def {name}_grad(grad, x):
    return {factor} * grad * x

def test_it(oneop_check):
    report = oneop_check({name}, properties=["first gradient, reference"], columns=["PyTorch eager"], seconds=2)
    assert report.seed == {seed}
"""


def test_a_passing_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST.format(name="square", factor=2, seed=5))
    result = pytester.runpytest_inprocess("--oneop-seed", "5", "--import-mode=importlib")
    result.assert_outcomes(passed=1)


def test_a_failing_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST.format(name="wrong_square", factor=3, seed=0))
    result = pytester.runpytest_inprocess("--import-mode=importlib")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*CheckFailedError: plugged::wrong_square: 1 of 1 cells failed (seed 0)",
            "*Every number is 1.5 times the right one.",
        ]
    )
    assert "src/oneop/check" not in result.stdout.str()


def test_the_options_are_explained(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--help")
    result.stdout.fnmatch_lines(["checking operators (the fixture oneop_check):", "*--oneop-thorough*"])


def test_the_plugin_does_not_import_torch() -> None:
    import oneop_pytest

    text = Path(oneop_pytest.__file__).read_text()
    assert "\nimport torch" not in text
    assert "\nimport oneop" not in text
