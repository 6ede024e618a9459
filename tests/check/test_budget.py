"""What is built before an operator is looked at takes none of its time, and fails what needs it."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

import oneop
from oneop import registry
from oneop.check import columns, running
from oneop.check.properties import Property
from oneop.check.results import Result
from oneop.check.running import check
from oneop.check.session import Clock, Outcome
from oneop.errors import BuildError
from oneop.targets.models import model_runners

NATIVE = "ONNX Runtime, native"
CUDA_ONLY = Path(__file__).parents[2] / "examples" / "scaled_linear_cuda" / "scaled_linear.py"
SECONDS = 5.0


def looked_at(operator: oneop.Operator, prepare, monkeypatch: pytest.MonkeyPatch) -> tuple[Result, list[Clock]]:
    """The cell of a row that notes its clock, for ONNX Runtime's kernels, which ``prepare`` builds."""
    (native,) = [item for item in model_runners() if item.title == NATIVE]
    monkeypatch.setattr(columns, "model_runners", lambda: (replace(native, prepare=prepare),))
    clocks: list[Clock] = []

    def run(session, column, clock: Clock) -> Outcome:
        clocks.append(clock)
        return Outcome(examples=1)

    monkeypatch.setattr(running, "PROPERTIES", (Property("noted", run, lambda subject, column: None),))
    report = check(operator, quick=True, seconds=SECONDS, targets=["onnxruntime"], native=False)
    result = report.result("noted", NATIVE)
    assert result is not None
    return result, clocks


def test_what_is_built_takes_no_time_from_the_calls(faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[float] = []

    def prepare(operators) -> None:
        time.sleep(0.2)
        built.append(time.monotonic())

    result, clocks = looked_at(faulty("right"), prepare, monkeypatch)
    assert result.status == "passed"
    assert len(built) == len(clocks) == 1
    assert clocks[0].deadline > built[0] + SECONDS - 0.1  # the build took 0.2


def test_what_does_not_build_fails_its_column(faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(operators) -> None:
        raise BuildError("the library does not link")

    result, clocks = looked_at(faulty("right"), prepare, monkeypatch)
    assert (result.status, clocks) == ("failed", [])
    assert result.finding is not None
    assert result.finding.summary == "raised BuildError: the library does not link"


def test_an_operator_with_kernels_for_cuda_only() -> None:
    operator = next(one for one in registry.load_file(CUDA_ONLY) if not one.definition.is_gradient)
    targets = sorted({item.target for item in model_runners() if item.is_native and item.missing() is None})
    report = check(operator, quick=True, seconds=2, properties=["opcheck"], targets=targets, native=False)
    assert report.ok, report.failures
    natives = [item for item in report.results if item.column.endswith("native")]
    assert len(natives) == len(targets) > 0
    assert {item.reason for item in natives} == {
        "the operator has kernels for CUDA only, and the file is run on the CPU"
    }
