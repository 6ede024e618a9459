"""Operators of every kind go through the check, and what cannot be looked at says why."""

from pathlib import Path

import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor

import oneop
from oneop import registry
from oneop.check import columns
from oneop.check.drawing import sample
from oneop.check.results import Report
from oneop.check.running import check
from oneop.check.subject import subject_of
from oneop.errors import DefinitionError
from oneop.targets.models import ModelRunner

GALLERY = Path(__file__).parents[1] / "gallery" / "gallery.py"


def gallery(base: str) -> oneop.Operator:
    registry.load_file(GALLERY)
    return registry.operators()[f"gallery::{base}"]


def eager(operator: oneop.Operator, **options) -> Report:
    return check(operator, quick=True, seconds=2, columns=["PyTorch eager"], native=False, **options)


def reason(report: Report, row: str) -> str | None:
    result = report.result(row, "PyTorch eager")
    assert result is not None
    assert result.status == "skipped", result
    return result.reason


@pytest.mark.parametrize(
    "base", ["moments", "every_attribute", "positive", "take", "total", "same", "windows", "linear_grad"]
)
def test_kinds(base: str) -> None:
    report = eager(gallery(base))
    assert report.ok, report.failures


def test_no_reference() -> None:
    report = eager(gallery("gradient_counts"), properties=["values", "vmap", "fake shapes", "inputs unchanged"])
    assert report.ok, report.failures
    assert reason(report, "values") == "there is no reference to compare with (native_only=True)"
    assert {item.status for item in report.results} == {"passed", "skipped"}


def test_sizes_that_only_the_values_decide() -> None:
    report = eager(gallery("positive"), properties=["vmap"])
    assert reason(report, "vmap") == "sizes that only the values decide (`?`) differ among the elements"


def test_no_gradients_of_integers() -> None:
    @oneop.op("kinds::bits")
    def bits(x: Int64[Tensor, "n"]) -> Int64[Tensor, "n"]:
        return x & 3

    report = eager(bits, properties=["values", "first gradient, reference", "forward mode"])
    assert report.ok
    assert reason(report, "first gradient, reference") == "no input or no output is floating"


def test_every_column_runs_an_operator_with_kernels(faulty) -> None:
    report = check(faulty("right"), quick=True, seconds=6, properties=["values", "shapes in the file"], native=False)
    assert report.ok, report.failures
    assert report.columns[:5] == (
        "PyTorch eager",
        "PyTorch compiled",
        "PyTorch exported",
        "ONNX Runtime, function body",
        "ONNX Runtime, native",
    )
    for column in report.columns[:5]:
        result = report.result("values", column)
        assert result is not None
        assert (result.status, result.examples > 0) == ("passed", True)


def test_a_fault_of_the_kernel_shows_in_the_native_column_and_not_in_the_body(faulty) -> None:
    report = check(
        faulty("dropped"), quick=True, seconds=4, properties=["values"], targets=["onnxruntime"], native=False
    )
    assert [(item.column, item.status) for item in report.results] == [
        ("ONNX Runtime, function body", "passed"),
        ("ONNX Runtime, native", "failed"),
    ]
    finding = report.failures[0].finding
    assert finding is not None
    assert "beta=0.5, the default" in str(finding.pattern)
    with pytest.raises(oneop.testing.CheckFailedError):
        exec(finding.snippet, {})


def test_a_target_that_is_missing_has_no_column_unless_it_is_named(faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "Elsewhere is not installed. Run `pip install elsewhere`."
    runner = ModelRunner("elsewhere", "Elsewhere", False, "inline", lambda: missing, lambda *_: None)
    monkeypatch.setattr(columns, "model_runners", lambda: (runner,))
    without = check(faulty("right"), quick=True, seconds=1, properties=["opcheck"], native=False)
    assert "Elsewhere" not in without.columns
    named = check(faulty("right"), quick=True, seconds=1, properties=["opcheck"], targets=["elsewhere"], native=False)
    assert [(item.column, item.status, item.finding.summary) for item in named.results] == [
        ("Elsewhere", "failed", missing)
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ["tensorflow"]}, "faulty::right: there is no target 'tensorflow'. Choose among 'pytorch', "),
        (
            {"targets": ["tensorrt"]},
            "faulty::right: models are built for 'tensorrt', and not run in it. Choose among 'pytorch', ",
        ),
        ({"columns": ["Eager"]}, "faulty::right: there is no column 'Eager'. Choose among 'PyTorch eager', "),
        ({"properties": ["value"]}, "faulty::right: there is no row 'value'. Choose among 'values', "),
    ],
)
def test_names_that_are_not_known(faulty, options, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        check(faulty("right"), **options)
    assert str(caught.value).startswith(message)


def test_an_example_outside_its_own_constraints() -> None:
    @oneop.op("kinds::chosen")
    def chosen(x: Float[Tensor, "n"], index: Int64[Tensor, "k"], *, scale: float = 1.0) -> Float[Tensor, "k"]:
        return scale * x[index]

    @chosen.example(index="0 <= index < n")
    def too_far():
        return torch.ones(2), torch.tensor([0, 2])

    with pytest.raises(DefinitionError) as caught:
        check(chosen)
    assert (
        str(caught.value)
        == "kinds::chosen: the example `too_far` is outside the operator's own constraints: `index`: it holds 2; its"
        ' constraint is "0 <= index < n", with n = 2. Correct the example or the constraint.'
    )


def test_an_example_that_is_no_call() -> None:
    @oneop.op("kinds::doubled")
    def doubled(x: Float[Tensor, "n"], *, scale: float = 2.0) -> Float[Tensor, "n"]:
        return scale * x

    @doubled.example
    def with_a_typo():
        return torch.ones(2), {"scael": 3.0}

    with pytest.raises(DefinitionError) as caught:
        check(doubled)
    assert (
        str(caught.value)
        == "kinds::doubled: the example `with_a_typo` is not a call of the operator: kinds::doubled: there is no"
        " parameter"
        " `scael`. The call is `doubled(x, *, scale=2.0)`. An example returns the inputs in order, and a dict of"
        " attributes behind them."
    )


def test_an_example_is_looked_at() -> None:
    @oneop.op("kinds::picky")
    def picky(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return x.clone()

    @picky.gradient
    def picky_grad(grad, x):
        return grad * (2 if float(x.detach().sum()) == 1234.0 else 1)

    assert eager(picky, properties=["first gradient, reference"]).ok

    @picky.example
    def the_one():
        return torch.tensor([1234.0])

    report = eager(picky, properties=["first gradient, reference"])
    finding = report.failures[0].finding
    assert finding is not None
    assert finding.case is not None
    assert finding.case.origin == "example `the_one`"


def test_kernels_run_from_a_file_without_a_function_where_torch_exports_none(faulty) -> None:
    """The reference asks for the size: no function is right for all of them."""
    column = "ONNX Runtime, native"
    rows = ["shapes in the file"]
    report = check(faulty("branching"), quick=True, seconds=1, properties=rows, columns=[column], native=False)
    assert report.ok, report.failures
    assert [item.examples > 0 for item in report.results] == [True]
    start = f"{column}: not run for the function in the file, which the kernels do without: faulty::branching: its"
    assert [note.startswith(start) for note in report.notes] == [True]


def test_a_lost_attribute_shows_in_every_column_of_kernels(faulty) -> None:
    """Where a column has few calls, none of them is with the defaults alone."""
    columns = ["PyTorch compiled", "PyTorch exported", "ONNX Runtime, native", "OpenVINO, native"]
    report = check(faulty("dropped"), quick=True, properties=["values"], columns=columns, native=False)
    assert [item.column for item in report.failures] == columns


def test_what_a_runtime_computes_in_fewer_bits_is_left_out_and_said() -> None:
    """An example of its author whose sums need more than 32 bits: no fault of the operator."""
    from campaign.planting import correct

    column = "OpenVINO, inlined"
    report = check(correct("tally"), quick=True, properties=["values"], columns=[column], native=False)
    (result,) = report.results
    assert result.status == "passed", result
    assert result.examples > 0
    assert report.notes == (f"{column}: not run for numbers beyond int32: openvino computes int64 in it",)


def test_a_runtime_that_loses_nan_is_not_asked_for_results_that_are() -> None:
    """The inputs have none: it comes of infinity minus infinity."""
    subject = subject_of(gallery("soft"))
    found, _ = columns.columns_of(subject)
    column = next(item for item in found if item.title == "OpenVINO, inlined")
    plain = sample(subject.space.cases(), 1, 0)[0]
    infinite = plain.with_inputs([torch.full_like(plain.tensors[0], torch.inf)])
    assert column.admits(plain)
    assert not column.admits(infinite)
    assert column.notes == ["NaN: the operators of openvino itself do not always keep it"]


@oneop.op("kinds::kept")
def kept(x: Int64[Tensor, "n"]) -> Int64[Tensor, "n"]:
    return x.clone()


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, -(2**63), 2**63 - 1])
def test_integers_of_more_bits_than_a_runtime_has_are_left_out(number: int) -> None:
    """The least one has no opposite: its absolute value is itself."""
    subject = subject_of(kept)
    column = next(item for item in columns.columns_of(subject)[0] if item.title == "OpenVINO, inlined")
    plain = sample(subject.space.cases(), 1, 0)[0]
    assert column.admits(plain)
    assert not column.admits(plain.with_inputs([torch.full((2,), number)]))
    assert column.admits(plain.with_inputs([torch.full((2,), 2**31 - 1)]))
