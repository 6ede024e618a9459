"""Each fault is found by the row that should find it, explained, and shown again by its snippet."""

import pytest

import oneop.testing
from oneop.check.results import Report
from oneop.check.running import CRASHED, check

EAGER = "PyTorch eager"

FAULTS = [
    ("dropped", "values", "These are the numbers for beta=0.5, the default, instead of"),
    ("nearly", "values", "Every number is"),
    ("exchanged", "values", "These are the numbers for weight transposed: its two indices are exchanged."),
    ("unstrided", "values", "The same numbers in contiguous memory give the right answer (x has strides"),
    ("short_of_one", "values", "Only the last index of dimension 0 is 0, and was never written or skipped"),
    ("lost_nan", "values", "A NaN is lost: a comparison with NaN is false"),
    (
        "racing",
        "concurrent callers",
        "Calls share memory: a static or global buffer. Keep it in the call, with ctx.scratch.",
    ),
    ("keeping", "memory", "Memory from malloc or new that is not given back"),
    ("summed", "first gradient, reference", "With the same incoming gradient in contiguous memory the answer is right"),
    ("both_wrong", "first gradient, finite differences", "Every number is 1.001 times the right one."),
    ("both_wrong", "first gradient, reference", "Every number is 1.001 times the right one."),
    ("half_forward", "forward mode", "A term of the gradient's formula or kernel is missing or wrong."),
    ("first_order_only", "second gradient, finite differences", "Every number is 0.5 times the right one."),
    ("first_order_only", "second gradient, reference", "Every number is 0.5 times the right one."),
]


def found(operator: oneop.Operator, row: str, *, seed: int = 0) -> Report:
    return check(operator, quick=True, seed=seed, seconds=8, properties=[row], columns=[EAGER], native=False)


@pytest.mark.parametrize(("name", "row", "pattern"), FAULTS, ids=lambda value: value if " " not in str(value) else "")
def test_a_fault_is_found_explained_and_shown_again(faulty, name: str, row: str, pattern: str) -> None:
    report = found(faulty(name), row)
    assert [(item.property, item.column) for item in report.failures] == [(row, EAGER)]
    finding = report.failures[0].finding
    assert finding is not None
    assert finding.pattern is not None
    assert finding.pattern.startswith(pattern) or pattern in finding.pattern, finding
    assert finding.snippet is not None
    with pytest.raises(oneop.testing.CheckFailedError):
        exec(compile(finding.snippet, "<snippet>", "exec"), {})


@pytest.mark.parametrize(("name", "row"), [("far", "values"), ("in_pieces", "threads")])
def test_a_fault_of_few_calls_is_found_however_little_time_there_is(faulty, name: str, row: str) -> None:
    report = check(faulty(name), quick=True, seconds=0, properties=[row], columns=[EAGER], native=False)
    assert [item.property for item in report.failures] == [row]


def test_the_smallest_call_is_shown(faulty) -> None:
    finding = found(faulty("dropped"), "values").failures[0].finding
    assert finding is not None
    assert finding.case is not None
    assert finding.case.describe() == "x float32[1, 1]; alpha=1.0; beta=2.0"
    assert finding.summary.startswith("out at [0, 0] is ")


def test_the_snippet_of_a_right_operator_raises_nothing(faulty) -> None:
    import torch

    oneop.testing.assert_property(faulty("right"), "values", [torch.randn(2, 3)], {"alpha": 2.0})
    with pytest.raises(oneop.testing.CheckFailedError, match=r"^faulty::nearly, values, PyTorch eager: out at "):
        oneop.testing.assert_property(faulty("nearly"), "values", [torch.randn(2)])


def test_the_whole_snippet(faulty) -> None:
    finding = found(faulty("nearly"), "values").failures[0].finding
    assert finding is not None
    lines = (finding.snippet or "").splitlines()
    assert lines[:5] == [
        "import torch",
        "from torch import inf, nan",
        "",
        "import oneop",
        "from oneop.testing import assert_property",
    ]
    assert lines[7] == "op = oneop.registry.operators()['faulty::nearly']"
    assert lines[9].startswith("x = torch.tensor([")
    assert lines[10:12] == ["inputs = [x]", "attributes = {'beta': 1.0}"]
    assert lines[-1].startswith("assert_property(op, 'values', inputs, attributes, column='PyTorch eager', seed=")


@pytest.mark.parametrize("name", ["right", "counted"])
@pytest.mark.parametrize("seed", range(3))
def test_right_operators_pass(faulty, name: str, seed: int) -> None:
    report = check(faulty(name), quick=True, seed=seed, seconds=4, columns=[EAGER], native=False)
    assert report.ok, report.failures
    assert {item.status for item in report.results} <= {"passed", "skipped"}


def test_the_same_seed_gives_the_same_report(faulty) -> None:
    first, again = (found(faulty("short_of_one"), "values", seed=3) for _ in range(2))
    left, right = first.failures[0].finding, again.failures[0].finding
    assert left is not None
    assert right is not None
    assert (left.summary, left.snippet, left.pattern) == (right.summary, right.snippet, right.pattern)


def test_a_crash_outside_python_keeps_the_kernel_out_of_this_process(faulty) -> None:
    report = check(faulty("crashing"), quick=True, seconds=4, properties=["values"], targets=["pytorch"])
    crashes = [item for item in report.failures if item.finding is not None and item.finding.crashed]
    assert [item.column for item in crashes if item.property == "crashes"] == ["kernel outside Python"]
    cell = report.result("values", EAGER)
    assert cell is not None
    assert cell.finding is not None
    assert cell.finding.summary == CRASHED


def test_a_reference_that_takes_nothing_is_no_pass(faulty) -> None:
    report = found(faulty("never_taken"), "values")
    finding = report.failures[0].finding
    assert finding is not None
    assert (
        finding.summary
        == "no call could be made up that the reference takes. The reference says: this reference takes nothing. Say"
        " which"
        ' values it takes, with @op.example(index="0 <= index < n") or an example of your own.'
    )
