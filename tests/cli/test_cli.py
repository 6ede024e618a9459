"""The command line as its user meets it: what is printed, where, and the exit status."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oneop

OPERATOR = """
import oneop
from jaxtyping import Float
from torch import Tensor

@oneop.op("cli::{name}")
def {name}(x: {annotation}) -> Float[Tensor, "n"]:
    return x
"""


def run(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oneop.cli", *map(str, arguments)]
    variables = {**os.environ, "COLUMNS": "100", **environment}
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False)


def fails(*arguments: object, cwd: Path | None = None) -> str:
    """Runs a command that must fail for a reason of the user's, and gives its message."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("oneop: ")
    return done.stderr


def test_version() -> None:
    assert run("--version").stdout == f"oneop {oneop.__version__}\n"


@pytest.mark.parametrize("command", ["build", "headers", "new"])
def test_help_shows_an_example(command: str) -> None:
    assert f"oneop {command} " in re.sub(r"\s+", " ", run(command, "--help").stdout).partition("Example")[2]


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    assert fails("build", "nothing.py", cwd=tmp_path) == (
        "oneop: nothing.py: there is no such file. Give the path of a Python file that defines operators.\n"
    )


def test_a_file_that_raises(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import math\n\nx = math.sqroot(2)\n")
    assert fails("build", "bad.py", cwd=tmp_path) == (
        "oneop: bad.py does not import: AttributeError: module 'math' has no attribute 'sqroot'\n"
        f"  {tmp_path}/bad.py, line 3: x = math.sqroot(2)\n"
    )


def test_a_file_that_has_a_syntax_error(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n")
    assert fails("build", "bad.py", cwd=tmp_path) == (
        f"oneop: bad.py does not import: SyntaxError: invalid syntax\n  {tmp_path}/bad.py, line 2: def f(:\n"
    )


def test_a_file_that_exits(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import sys\nsys.exit(0)\n")
    assert "bad.py does not import: SystemExit: 0\n" in fails("build", "bad.py", cwd=tmp_path)


def test_a_file_that_has_a_definition_error(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(OPERATOR.format(name="same", annotation="int"))
    said = fails("build", "bad.py", cwd=tmp_path)
    assert "cli::same" in said
    assert f'{tmp_path}/bad.py, line 6: @oneop.op("cli::same")' in said


def test_a_file_that_defines_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert "empty.py: the file defines no operator." in fails("headers", "empty.py", cwd=tmp_path)


def test_headers_of_operators_without_kernels(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(OPERATOR.format(name="plain", annotation='Float[Tensor, "n"]'))
    assert fails("headers", "plain.py", cwd=tmp_path) == (
        "oneop: plain.py defines no operator with kernels, so there is no header to write.\n"
    )
