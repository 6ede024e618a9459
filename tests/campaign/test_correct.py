"""The operators as they are: no row complains, whatever the seed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from campaign import asking
from campaign.planting import NAMES, correct
from oneop.check.drawing import FOCUSES
from oneop.check.running import check
from oneop.check.subject import subject_of

SEEDS = 50
BLOCKS = [range(start, start + 25) for start in range(0, SEEDS, 25)]
WITH_KERNELS = tuple(name for name in NAMES if correct(name).has_kernels)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Hundreds of small calls: threads that wait for each other would cost more than they do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_no_row_complains(name: str, seeds: range) -> None:
    asked, found = asking.alarms(correct(name), seeds)
    assert found == []
    assert asked >= len(seeds) * 5


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_no_row_complains_outside_python(name: str) -> None:
    operator = correct(name)
    space = subject_of(operator).space
    cases = [case for seed in range(SEEDS) for case in asking.drawn(space, asking.in_turn(seed), [seed])]
    results = asking.outside_python(operator, cases)
    assert [result.finding.summary for result in results if result.finding is not None] == []
    assert {result.status for result in results} == {"passed"}
    assert {result.reason for result in results} == {None}


@pytest.mark.parametrize(
    ("name", "sanitizer"), [("windows", "address"), ("tally", "address"), ("linear", "thread"), ("softmax", "thread")]
)
def test_no_sanitizer_complains(name: str, sanitizer: str) -> None:
    operator = correct(name)
    cases = asking.drawn(subject_of(operator).space, FOCUSES, range(5))
    (result,) = asking.outside_python(operator, cases, sanitizer)
    assert result.status == "passed"


def test_the_whole_table_passes() -> None:
    report = check(correct("gather"), quick=True, seconds=1.0, seed=1)
    assert [f"{r.property}, {r.column}: {r.finding.summary}" for r in report.failures if r.finding] == []
    assert len(report.columns) >= 5
    assert len(report.properties) >= 15


def test_the_operators_are_those_of_the_folder() -> None:
    folder = Path(__file__).with_name("operators")
    assert len(NAMES) == len(list(folder.glob("*.py"))) >= 14
    assert len(WITH_KERNELS) == len(list(folder.glob("*.c"))) + len(list(folder.glob("*.cpp")))
