"""What is not on this machine: a compiler, its sanitizers, a runtime; and a person who stops the check."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import oneop
from oneop import registry
from oneop.check import native, page, running
from oneop.check.columns import Runner
from oneop.check.native import programs, rows
from oneop.check.running import check
from oneop.cli import app
from oneop.errors import BuildError

ABSENT = "the runtime is not installed. Run `pip install runtime`."
REFUSAL = "c++: error: unrecognized command-line option '-fsanitize=thread'"
COLUMNS = ["PyTorch eager", "ONNX Runtime, native"]
HALVE = """
import oneop
from jaxtyping import Float
from torch import Tensor

@oneop.op("missing::halve")
def halve(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x / 2
"""


@pytest.fixture(scope="module")
def halve(tmp_path_factory: pytest.TempPathFactory) -> oneop.Operator:
    file = tmp_path_factory.mktemp("missing") / "halve.py"
    file.write_text(HALVE)
    (operator,) = registry.load_file(file)
    return operator


def test_without_a_compiler_it_is_said_once(faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "nonexistent-compiler")
    results = {item.property: item for item in native.findings(faulty("right"), calls(faulty("right")))}
    finding = results[rows.CRASHES].finding
    assert finding is not None
    assert finding.summary == (
        "faulty::right: $CXX is `nonexistent-compiler`, but there is no program `nonexistent-compiler`. Set $CXX to a"
        " C++ compiler, or unset it to use the system's."
    )
    assert finding.details is None
    assert results[rows.VALUES].reason == "the kernels could not be built"


def test_a_cxx_without_sanitizers_is_said_to_have_none(faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "plain-c++"
    compiler.write_text(
        '#!/bin/sh\nfor word in "$@"; do case "$word" in -fsanitize*)'
        f" {shlex.join(['echo', REFUSAL])} >&2; exit 1;; esac; done\n"
        'exec c++ "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(BuildError, match=re.escape("This compiler has no ThreadSanitizer. Debian, Ubuntu:")):
        programs.kernels(faulty("right"), "thread")


def calls(operator: oneop.Operator) -> list:
    from oneop.check.drawing import sample
    from oneop.check.session import MIXED
    from oneop.check.subject import subject_of

    return sample(subject_of(operator).space.cases(MIXED), 3, 0)


def test_a_runtime_that_is_missing_is_noted_and_fails_where_it_is_named(
    halve: oneop.Operator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Runner, "missing", lambda self: ABSENT if self.target == "onnxruntime" else None)
    report = check(halve, quick=True, seconds=1, properties=["no aliasing"], columns=COLUMNS)
    assert report.ok
    assert report.columns == ("PyTorch eager",)
    assert report.notes == (f"ONNX Runtime, native: skipped, {ABSENT}",)
    page.write(tmp_path / "report.html", [report], "title")
    assert "pip install runtime`.<" in (tmp_path / "report.html").read_text()

    named = check(halve, quick=True, properties=["no aliasing"], columns=COLUMNS, targets=["onnxruntime"])
    assert [item.finding.summary for item in named.failures if item.finding is not None] == [ABSENT]
    assert named.notes == ()


def test_who_interrupts_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    Path("file.py").write_text(HALVE.replace("halve", "stopped"))
    monkeypatch.setattr(running, "check", interrupted)
    done = CliRunner().invoke(app, ["check", "file.py", "--html", "report.html", "--junit", "report.xml"])
    assert done.exit_code == 130
    assert done.stderr.strip() == "oneop: interrupted; no report was written"
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file.py"]


def test_two_reports_in_one_file_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.py").write_text(HALVE.replace("halve", "twice"))
    done = CliRunner().invoke(app, ["check", "file.py", "--html", "report", "--junit", "./report"])
    assert done.exit_code == 1
    assert done.stderr == (
        "oneop: --html and --junit both name report: the second would replace the first. Give two paths.\n"
    )
    assert not Path("report").exists()
