"""`oneop check` as its user meets it: what is printed, what is written, the exit status."""

import os
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from oneop.cli import app
from oneop.kernels.cache import cache_root

RIGHT = """
import oneop
from jaxtyping import Float
from torch import Tensor

@oneop.op("checked::halve")
def halve(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x / 2
"""
WRONG = """
import torch
import oneop
from jaxtyping import Float
from torch import Tensor

@oneop.op("checked::sine")
def sine(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return torch.sin(x)

@sine.gradient
def sine_grad(grad, x):
    return -grad * torch.cos(x)
"""


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["check", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_right_operator() -> None:
    Path("halve.py").write_text(RIGHT)
    status, out, _ = run("halve.py:halve", "--quick", "--target", "pytorch", "--seed", "3", "--junit", "report.xml")
    assert status == 0, out
    assert "checked::halve, seed 3" in out
    assert "1 operator: nothing failed" in out
    suite = ElementTree.parse("report.xml").getroot()[0]
    assert suite.attrib["name"] == "checked::halve"
    assert suite.attrib["failures"] == "0"
    names = {case.attrib["name"] for case in suite}
    assert {"values", "first gradient, finite differences", "memory", "opcheck"} <= names
    reasons = {skipped.attrib["message"] for skipped in suite.iter("skipped")}
    assert "torch.compile does not differentiate twice" in reasons


def test_a_wrong_operator() -> None:
    Path("sine.py").write_text(WRONG)
    status, out, _ = run("sine.py", "--quick", "--target", "pytorch", "--junit", "report.xml", "--html", "report.html")
    assert status == 1
    for text in (
        "FAILED checked::sine: first gradient, finite differences, PyTorch eager",
        "FAILED checked::sine: first gradient, reference, PyTorch compiled",
        "got           expected   difference",
        "What this usually means: Every number has the wrong sign.",
        "assert_property(op, 'first gradient, reference', inputs, attributes, column='PyTorch eager', seed=",
        "wrote report.html",
        "wrote report.xml",
    ):
        assert text in out, out
    failure = next(ElementTree.parse("report.xml").getroot().iter("failure"))
    assert "measured slope" in failure.attrib["message"]
    assert "To see it again:" in str(failure.text)
    assert "Every number has the wrong sign." in Path("report.html").read_text()


@pytest.mark.parametrize(
    ("content", "subject", "message"),
    [
        (
            "import nonexistent_module",
            "file.py",
            "oneop: file.py does not import: ModuleNotFoundError: No module named",
        ),
        ("x = 1", "file.py", "oneop: file.py: the file defines no operator."),
        (
            RIGHT.replace("halve", "third"),
            "file.py:thrid",
            "oneop: file.py defines no operator 'thrid'. Name one of third.",
        ),
        (RIGHT, "other.py", "oneop: other.py: there is no such file."),
        (RIGHT, "other.py:halve", "oneop: other.py: there is no such file."),
    ],
)
def test_what_cannot_be_checked(content: str, subject: str, message: str) -> None:
    Path("file.py").write_text(content)
    status, _, said = run(subject)
    assert status == 1
    assert said.startswith(message)


def test_an_example_outside_its_constraints_is_a_failure_of_the_operator() -> None:
    more = """
@fourth.example(x="positive")
def negative():
    import torch
    return torch.tensor([-1.0])
"""
    Path("fourth.py").write_text(RIGHT.replace("halve", "fourth") + more)
    status, out, _ = run("fourth.py", "--junit", "report.xml")
    assert status == 1
    assert "FAILED checked::fourth: the check itself, definition" in out
    assert "the example `negative` is outside the operator's own constraints" in out
    assert ElementTree.parse("report.xml").getroot()[0].attrib["failures"] == "1"


def test_a_target_that_is_not_known() -> None:
    Path("fifth.py").write_text(RIGHT.replace("halve", "fifth"))
    status, out, _ = run("fifth.py", "--target", "tensorflow")
    assert status == 1
    assert "checked::fifth: there is no target 'tensorflow'. Choose among 'pytorch'," in out
    assert out.endswith("\n1 operator, 1 cell, 1 failed\n")


def test_a_report_that_cannot_be_written_is_said_first() -> None:
    Path("halve.py").write_text(RIGHT)
    status, out, said = run("halve.py", "--html", "nowhere/report.html")
    assert status == 1
    assert "nowhere" in said
    assert "seed" not in out


SIXTH = RIGHT.replace("halve", "sixth")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            '@sixth.example()\ndef broken():\n    raise ValueError("nothing here")\n',
            "checked::sixth: the example `broken` raised ValueError: nothing here. Correct the example.",
        ),
        (
            'sixth.example(x="2 <= x <= 1", n="n >= 1")\n',
            "checked::sixth: no call could be made up that fits the operator's constraints"
            ' (x="2 <= x <= 1", n="n >= 1") and its definition.',
        ),
    ],
    ids=["example", "constraint"],
)
def test_an_example_that_raises_and_a_constraint_that_nothing_fits(more: str, message: str) -> None:
    name = "sixth" if "broken" in more else "seventh"
    Path(f"{name}.py").write_text((SIXTH + more).replace("sixth", name))
    status, out, _ = run(f"{name}.py", "--target", "pytorch", "--quick")
    assert status == 1
    assert message.replace("sixth", name) in out
    assert "Traceback" not in out


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No temporary folder where the check ends at once; and what hypothesis notes is not in the user's folder."""
    left = tmp_path / "temporary"
    left.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(left))
    monkeypatch.delenv("HYPOTHESIS_STORAGE_DIRECTORY", raising=False)
    Path("eighth.py").write_text(RIGHT.replace("halve", "eighth"))
    status, out, _ = run("eighth.py", "--target", "tensorflow")
    assert status == 1, out
    assert list(left.iterdir()) == []
    assert Path(os.environ["HYPOTHESIS_STORAGE_DIRECTORY"]) == cache_root() / "hypothesis"
