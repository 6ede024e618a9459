"""The second process finds what one process alone would find, and takes nothing with it where it ends."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oneop import registry
from oneop.check import running
from oneop.check.companion import Companion, is_worth_it
from oneop.check.results import Report
from oneop.check.running import check

ROWS = ["values", "shapes in the file"]
TARGETS = ["pytorch", "onnxruntime"]
EXPORTED = "PyTorch exported"

DEFINITION = """
import os
from jaxtyping import Float
from torch import Tensor
import oneop

@oneop.op("companion::{name}")
def {name}(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    {line}
    return 2 * x
"""


CLOSED = """
from oneop import registry
from oneop.check import running
from oneop.check.companion import Companion
from oneop.check.running import check

with Companion() as companion:
    (operator,) = registry.load_file("closed.py")
    given = {"seconds": 1, "targets": ["pytorch"], "properties": ["values"], "native": False}
    print(check(operator, quick=True, companion=companion, **given).ok)
"""


def looked_at(operator, companion: Companion | None) -> Report:
    return check(operator, quick=True, seconds=1, targets=TARGETS, properties=ROWS, native=False, companion=companion)


def statuses(report: Report) -> list[tuple[str, str, str, str | None]]:
    return [(item.property, item.column, item.status, item.reason) for item in report.results]


def test_what_is_found_is_the_same_in_the_same_order(faulty) -> None:
    with Companion() as companion:
        for name in ("right", "dropped"):
            alone, together = looked_at(faulty(name), None), looked_at(faulty(name), companion)
            assert statuses(together) == statuses(alone)
            assert together.notes == alone.notes
            assert alone.ok == (name == "right")
            for one, other in zip(alone.failures, together.failures, strict=True):
                assert one.finding is not None
                assert other.finding is not None
                assert (one.finding.summary, one.finding.pattern) == (other.finding.summary, other.finding.pattern)
                assert one.finding.snippet == other.finding.snippet
                assert one.finding.case is not None
                assert other.finding.case is not None
                assert one.finding.case.describe() == other.finding.case.describe()


def test_each_cell_is_done_once(faulty) -> None:
    told: list[tuple[str, int, int]] = []
    with Companion() as companion:
        report = check(
            faulty("right"),
            quick=True,
            seconds=1,
            properties=ROWS,
            columns=["PyTorch eager", EXPORTED],
            native=False,
            companion=companion,
            on_progress=lambda *said: told.append(said),
        )
    assert told[-1] == ("done", len(report.results), len(report.results))
    assert {total for _, _, total in told} == {len(report.results)}
    assert f"values, {EXPORTED}" in [what for what, _, _ in told]
    assert "values, PyTorch eager" in [what for what, _, _ in told]


def operator_of(folder: Path, name: str, line: str):
    (folder / f"{name}.py").write_text(DEFINITION.format(name=name, line=line))
    return registry.load_file(folder / f"{name}.py")[0]


def test_a_crash_in_it_fails_what_it_did_not_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TESTS_PROCESS", str(os.getpid()))
    crashing = operator_of(tmp_path, "crashing", "str(os.getpid()) == os.environ['THE_TESTS_PROCESS'] or os.abort()")
    right = operator_of(tmp_path, "right", "pass")
    with Companion() as companion:
        report = looked_at(crashing, companion)
        eager, exported = report.result("values", "PyTorch eager"), report.result("values", EXPORTED)
        assert eager is not None
        assert eager.status == "passed"
        assert exported is not None
        assert exported.finding is not None
        assert exported.finding.summary == (
            "not looked at: the process that looks at it was ended by SIGABRT (in values, ONNX Runtime, function body)"
        )
        assert {item.column for item in report.failures} >= {EXPORTED, "ONNX Runtime, function body"}
        assert looked_at(right, companion).ok  # it was started again


def test_a_file_that_only_the_other_process_cannot_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TESTS_PROCESS", str(os.getpid()))
    operator = operator_of(tmp_path, "choosy", "pass")
    text = Path(operator.defined_in).read_text()
    Path(operator.defined_in).write_text(f"{text}\nraise ValueError('not twice')\n")
    with Companion() as companion:
        report = looked_at(operator, companion)
    exported = report.result("values", EXPORTED)
    assert exported is not None
    assert exported.finding is not None
    assert exported.finding.summary == "not looked at: the process that looks at it failed: ValueError: not twice"


def test_a_check_that_is_given_up_leaves_no_answer_behind(faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    class GivenUpError(Exception):
        pass

    def given_up(self, ways):
        raise GivenUpError

    with Companion() as companion:
        with monkeypatch.context() as patched:
            patched.setattr(running._Check, "_outside", given_up)
            with pytest.raises(GivenUpError):
                looked_at(faulty("dropped"), companion)
        report = looked_at(faulty("right"), companion)
        assert report.ok, report.failures
        assert report.operator == "faulty::right"


def test_it_ends_with_the_block() -> None:
    with Companion() as companion:
        assert companion._process.poll() is None
    assert companion._process.poll() is not None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for the process in /proc")
def test_it_ends_with_the_process_that_started_it() -> None:
    code = (
        "import time; from oneop.check.companion import Companion; c = Companion();"
        " print(c._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starting:
        assert starting.stdout is not None
        companion = int(starting.stdout.readline())
        os.kill(companion, 0)
        starting.send_signal(signal.SIGKILL)
    end = time.monotonic() + 60
    while _runs(companion):
        assert time.monotonic() < end, "the process is still there"
        time.sleep(0.1)


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_standard_streams_that_are_closed(tmp_path: Path) -> None:
    """Their numbers go to what is opened next, which must not be the way to the process."""
    operator_of(tmp_path, "closed", "pass")
    (tmp_path / "main.py").write_text(CLOSED)
    closing = ["sh", "-c", f"exec {shlex.quote(sys.executable)} main.py 0<&- 2>&-"]
    assert subprocess.run(closing, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False).stdout == "True\n"


def test_where_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    assert is_worth_it(None)
    assert is_worth_it(["pytorch", "onnxruntime"])
    assert not is_worth_it(["pytorch"])
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    assert not is_worth_it(None)
