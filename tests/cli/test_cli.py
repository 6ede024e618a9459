"""The command line as its user meets it: what is printed, where, and the exit status."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import oneop
from oneop.cli import app

OPERATOR = """
import oneop
from jaxtyping import Float
from torch import Tensor

@oneop.op("cli::{name}")
def {name}(x: {annotation}) -> Float[Tensor, "n"]:
    return x
"""


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def succeeds(*arguments: str) -> str:
    """Runs a command and gives what it printed on stdout."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def fails(*arguments: str) -> str:
    """Runs a command that must fail for a reason of the user's, and gives its message."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("oneop: ")
    return done.stderr


def test_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "oneop.cli", "build", "nothing.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "oneop: nothing.py: there is no such file. Give the path of a Python file that defines operators.\n"
    )


def test_version() -> None:
    assert succeeds("--version") == f"oneop {oneop.__version__}\n"


@pytest.mark.parametrize("command", ["bench", "build", "headers", "new", "package"])
def test_help_shows_an_example(command: str) -> None:
    shown = re.sub(r"\s+", " ", succeeds(command, "--help"))
    assert f"oneop {command} " in shown.partition("Example")[2]


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "operators").mkdir()
    assert fails("build", "operators") == (
        "oneop: operators: this is a folder. Give the path of a Python file in it that defines operators.\n"
    )


def test_an_empty_name_of_a_folder(tmp_path: Path) -> None:
    succeeds("new", "placed")
    before = sorted(tmp_path.iterdir())
    said = "is empty, and has to name a folder. Leave it out for the folder you are in.\n"
    assert fails("build", "placed.py", "-o", "") == f"oneop: --output {said}"
    assert fails("new", "other", "-d", "") == f"oneop: --directory {said}"
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_raises(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import math\n\nx = math.sqroot(2)\n")
    assert fails("build", "bad.py") == (
        "oneop: bad.py does not import: AttributeError: module 'math' has no attribute 'sqroot'\n"
        f"  {tmp_path}/bad.py, line 3: x = math.sqroot(2)\n"
    )


def test_a_file_that_has_a_syntax_error(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n")
    assert fails("build", "bad.py") == (
        f"oneop: bad.py does not import: SyntaxError: invalid syntax\n  {tmp_path}/bad.py, line 2: def f(:\n"
    )


def test_a_file_that_exits(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import sys\nsys.exit(0)\n")
    assert "bad.py does not import: SystemExit: 0\n" in fails("build", "bad.py")


def test_a_file_that_has_a_definition_error(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(OPERATOR.format(name="same", annotation="int"))
    said = fails("build", "bad.py")
    assert "cli::same" in said
    assert f'{tmp_path}/bad.py, line 6: @oneop.op("cli::same")' in said


def test_a_file_that_defines_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert "empty.py: the file defines no operator." in fails("headers", "empty.py")


def test_headers_of_operators_without_kernels(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(OPERATOR.format(name="plain", annotation='Float[Tensor, "n"]'))
    assert fails("headers", "plain.py") == (
        "oneop: plain.py defines no operator with kernels, so there is no header to write.\n"
    )


def test_headers(tmp_path: Path) -> None:
    succeeds("new", "shown", "--directory", "operators")
    wrote, where = succeeds("headers", "operators/shown.py").splitlines()
    assert wrote == "wrote operators/shown.h"
    assert where.startswith("they include files of ")
    assert where.endswith(": add that folder to your editor's include path")
    assert "struct shown_args" in (tmp_path / "operators" / "shown.h").read_text()


def test_build(tmp_path: Path) -> None:
    succeeds("new", "built")
    path = succeeds("build", "built.py", "--output", "libraries").strip()
    assert Path(path).parent.resolve() == tmp_path / "libraries"
    assert b"RegisterCustomOps" in Path(path).read_bytes()


def test_build_for_an_unknown_target(tmp_path: Path) -> None:
    succeeds("new", "aimless")
    assert "oneop: 'tflite' is not a target that oneop builds for. Choose one of 'onnxruntime'" in fails(
        "build", "aimless.py", "--target", "tflite"
    )


def test_build_of_a_kernel_that_does_not_compile(tmp_path: Path) -> None:
    succeeds("new", "broken", "--language", "c")
    with (tmp_path / "broken.c").open("a") as file:
        file.write("int oops = undeclared;\n")
    said = fails("build", "broken.py", "--output", "libraries")
    assert "broken.c:" in said
    assert "undeclared" in said
    assert not (tmp_path / "libraries").exists()
