"""docs/check.md shows what happens: its rows, its slices of files, its failure, its commands."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneop.check.console import finding_text
from oneop.check.constraints import WORDS
from oneop.check.native import rows
from oneop.check.properties import PROPERTIES
from oneop.check.running import check
from oneop.cli import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")


def block(tag: str) -> str:
    found = re.search(rf"<!-- {re.escape(tag)} -->\n```\w+\n(.*?)```\n", TEXT, re.DOTALL)
    assert found is not None, tag
    return found[1]


def test_the_rows_are_those_that_there_are() -> None:
    listed = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", TEXT, re.M)
    assert listed == ["row", "---", *(item.title for item in PROPERTIES)]
    only_outside = [row for row in rows.ROWS if row not in listed]
    assert only_outside == ["crashes", "stray writes", "uninitialised memory", "alignment"]
    for row in [*only_outside, rows.COLUMN]:
        assert f"`{row}`" in TEXT


def test_every_word_of_a_constraint_is_named() -> None:
    for word in WORDS:
        assert f"`{word}`" in TEXT


@pytest.mark.parametrize("file", ["tests/check/faulty.py", "src/oneop/operator.py"])
def test_slices(file: str) -> None:
    assert block(f"slice: {file}") in (ROOT / file).read_text(encoding="utf-8")


def test_the_failure_is_what_is_printed(faulty) -> None:
    report = check(
        faulty("dropped"), quick=True, seconds=8, properties=["values"], columns=["PyTorch eager"], native=False
    )
    finding = report.failures[0].finding
    assert finding is not None
    printed = re.sub(r"load_file\('[^']*faulty\.py'\)", "load_file('faulty.py')", finding_text(finding))
    assert block("failure") == printed + "\n"


def test_the_commands_options_are_those_that_there_are() -> None:
    said = CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).stdout
    for option in set(re.findall(r"--\w+", block("commands"))):
        assert option in said


def test_the_test_shown_compiles() -> None:
    compile(block("testing"), "docs/check.md", "exec")
