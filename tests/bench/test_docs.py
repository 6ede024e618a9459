"""docs/bench.md: its commands are those that there are, and its table is that of the columns."""

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from oneop.bench import columns
from oneop.cli import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^oneop bench (.*)$", TEXT, re.MULTILINE)


def test_the_table_has_every_column() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| `([a-z]+)` \|", TEXT, re.MULTILINE)
    assert rows == [(column.name, column.target) for column in columns.columns()]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_read(command: str) -> None:
    group = typer.main.get_command(app)
    found = group.commands["bench"]  # type: ignore[attr-defined]
    assert found.make_context("bench", shlex.split(command)).params["operators"].startswith("scaled_linear.py")


def test_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "scaled_linear_cpp")
    (command,) = [command for command in COMMANDS if "--size n=64,k=32,m=16" in command]
    done = CliRunner().invoke(app, ["bench", *shlex.split(command), "--seconds", "0.002", "--no-backward"])
    assert done.exit_code == 0, done.output
    assert "n=64 k=32 m=16" in done.stdout
