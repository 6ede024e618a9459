"""The table in a terminal: no column is lost where it is narrow."""

import io

import pytest
from rich.console import Console

from oneop.check.console import print_report
from oneop.check.results import Finding, Report, Result

COLUMNS = (
    "PyTorch eager",
    "PyTorch compiled",
    "PyTorch exported",
    "ONNX Runtime, function body",
    "ONNX Runtime, native",
    "OpenVINO, inlined",
    "OpenVINO, native",
)


def printed(width: int) -> str:
    finding = Finding("the last column is wrong")
    results = [Result("second gradient, finite differences", column, "passed") for column in COLUMNS[:-1]]
    results.append(Result("second gradient, finite differences", COLUMNS[-1], "failed", finding=finding))
    written = io.StringIO()
    print_report(Report("demo::op", tuple(results), 0, 1.0), Console(file=written, width=width))
    return written.getvalue().split("FAILED demo::op")[0]


@pytest.mark.parametrize(("width", "tables"), [(50, 4), (60, 3), (80, 2), (120, 1)])
def test_each_column_is_there_at_every_width(width: int, tables: int) -> None:
    text = printed(width)
    assert text.count("demo::op, seed 0") == tables
    assert text.count("passed") == 6
    assert text.count("FAILED") == 1
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())


def test_what_a_passed_cell_could_not_cover_is_said() -> None:
    passed = Result("values", COLUMNS[0], "passed", "3 calls were not made after one that did not return")
    skipped = Result("values", COLUMNS[1], "skipped", "there is no file")
    written = io.StringIO()
    print_report(Report("demo::op", (passed, skipped), 0, 1.0), Console(file=written, width=120))
    text = written.getvalue()
    assert "passed (1)" in text
    assert "skip (2)" in text
    assert "  (1) 3 calls were not made after one that did not return" in text
    assert "  (2) there is no file" in text
