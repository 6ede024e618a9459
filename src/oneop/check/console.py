"""The report as text: the table of properties and columns, and each failure with its numbers side by side."""

import textwrap
from collections.abc import Sequence

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from oneop.check.native.rows import COLUMN as OUTSIDE
from oneop.check.results import Finding, Report, Result

SHOWN = 12
"""The most elements whose numbers are written side by side."""
NARROWEST = 120
"""What is no terminal gets a table of this width: it can be read in CI's log."""
_ROW, _CELL, _AROUND, _EDGES = 20, 9, 3, 2
"""What a property's title, a cell, and the space around a cell and the table need at least."""
_MARKS = {"passed": ("passed", "green"), "failed": ("FAILED", "bold red"), "skipped": ("skip", "dim")}


def print_report(report: Report, console: Console) -> None:
    """The table, why cells were skipped, and the failures."""
    for columns in _that_fit(report, console.width):
        console.print(table(report, columns, console.width))
    for number, reason in enumerate(reasons(report), 1):
        console.print(f"  ({number}) {reason}", style="dim", markup=False, highlight=False)
    for note in report.notes:
        console.print(f"  {note}", style="dim", markup=False, highlight=False)
    for result in distinct_failures(report):
        console.print()
        console.print(failure_text(report, result), markup=False, highlight=False, soft_wrap=True)


def _that_fit(report: Report, width: int) -> list[list[str]]:
    """The columns of each table: a narrow terminal gets several, for rich would leave out what does not fit."""
    groups: list[list[str]] = [[]]
    left = width - _ROW - _EDGES
    for column in report.columns:
        needed = _narrowest(column) + _AROUND
        if groups[-1] and needed > left:
            groups.append([])
            left = width - _ROW - _EDGES
        groups[-1].append(column)
        left -= needed
    return groups


def _narrowest(column: str) -> int:
    return max(_CELL, *map(len, column.split()))


def table(report: Report, columns: Sequence[str] | None = None, width: int | None = None) -> Table:
    """One row a property, one column a target: all of them, or some.

    The numbers in brackets are those of the reasons below the table. Titles are wrapped where ``width`` is too small.
    """
    listed = reasons(report)
    columns = report.columns if columns is None else columns
    title = f"{report.operator}, seed {report.seed}, {report.seconds:.0f} s"
    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    longest = max(map(len, report.properties), default=0)
    is_tight = width is not None and _EDGES + longest + sum(max(len(c), _CELL) + _AROUND for c in columns) > width
    if is_tight and width is not None:
        room = width - _EDGES - sum(_narrowest(column) + _AROUND for column in columns)
        drawn.add_column("property", width=max(_ROW, min(longest, room)))
    else:
        drawn.add_column("property", min_width=_ROW)
    for column in columns:
        drawn.add_column(column, min_width=_CELL, width=_narrowest(column) if is_tight else None)
    for row in report.properties:
        drawn.add_row(row, *(_cell(report.result(row, column), listed) for column in columns))
    return drawn


def reasons(report: Report) -> list[str]:
    """Why cells were skipped, and what those that passed could not cover, each once."""
    return list(dict.fromkeys(item.reason for item in report.results if item.status != "failed" and item.reason))


def _cell(result: Result | None, listed: Sequence[str]) -> Text:
    if result is None:
        return Text("-", style="dim")
    word, style = _MARKS[result.status]
    number = f" ({listed.index(result.reason) + 1})" if result.reason in listed else ""
    return Text(word + number, style=style)


def distinct_failures(report: Report) -> list[Result]:
    """Each finding once: a kernel that does not build fails many cells in the same words. Those of the program outside
    Python come last, unless a kernel crashed there: the others are made small, and explained.
    """
    found: dict[str, Result] = {}
    for result in sorted(report.failures, key=_comes_last):
        finding = result.finding
        same = finding is not None and finding.case is None
        found.setdefault(
            finding.summary if same and finding is not None else f"{result.property}|{result.column}", result
        )
    return list(found.values())


def _comes_last(result: Result) -> bool:
    return result.column == OUTSIDE and not (result.finding is not None and result.finding.crashed)


def failures_text(report: Report) -> str:
    """All failures of a report as one message."""
    count = len(report.failures)
    head = f"{report.operator}: {count} of {len(report.results)} cells failed (seed {report.seed})"
    return "\n\n".join([head, *(failure_text(report, result) for result in distinct_failures(report))])


def failure_text(report: Report, result: Result) -> str:
    """One failure: the call, the numbers, the pattern, the snippet."""
    assert result.finding is not None
    where = f"FAILED {report.operator}: {result.property}, {result.column}"
    return f"{where}\n{textwrap.indent(finding_text(result.finding), '  ')}"


def finding_text(finding: Finding) -> str:
    parts = [finding.summary]
    if finding.case is not None:
        parts.append(f"with {finding.case.describe()}")
    for index, (name, got, expected) in enumerate(zip(finding.labels, finding.got, finding.expected, strict=False)):
        tolerance = finding.tolerance[index] if index < len(finding.tolerance) else None
        parts.append(side_by_side(name, got, expected, tolerance))
    if finding.pattern is not None:
        parts.append(f"What this usually means: {finding.pattern}")
    if finding.details:
        parts.append(finding.details.rstrip())
    if finding.snippet is not None:
        parts.append("To see it again:\n\n" + textwrap.indent(finding.snippet.rstrip(), "    "))
    return "\n".join(parts)


def side_by_side(name: str, got: Tensor, expected: Tensor, tolerance: Tensor | None) -> str:
    """The numbers that came back, those that are right, and the difference: the worst first where there are many."""
    if got.shape != expected.shape:
        return f"{name}: shape {tuple(got.shape)}, and {tuple(expected.shape)} is right"
    flat, right = got.flatten(), expected.flatten()
    difference = (flat.double() - right.double()).abs() if got.dtype != torch.bool else (flat != right).double()
    bad = difference.nan_to_num(torch.inf, torch.inf)
    both = flat.double().isnan() & right.double().isnan() | (flat == right)
    bad = torch.where(both, torch.zeros_like(bad), bad)
    order = torch.arange(len(flat)) if len(flat) <= SHOWN else bad.argsort(descending=True)[:SHOWN]
    lines = [
        f"{name:<16} {'got':>18} {'expected':>18} {'difference':>12}"
        + (f" {'allowed':>10}" if tolerance is not None else "")
    ]
    for index in order.tolist():
        place = [int(i) for i in torch.unravel_index(torch.tensor(index), got.shape)] if got.ndim else ""
        allowed = f" {float(tolerance.flatten()[index]):>10.2g}" if tolerance is not None else ""
        lines.append(
            f"{place!s:<16} {_number(flat[index]):>18} {_number(right[index]):>18}"
            f" {float(difference[index]):>12.3g}{allowed}"
        )
    if len(flat) > SHOWN:
        lines.append(f"... {len(flat)} elements; the {SHOWN} that are furthest off are shown")
    return "\n".join(lines)


def _number(value: Tensor) -> str:
    item = value.item()
    return f"{item:.9g}" if isinstance(item, float) else str(item)
