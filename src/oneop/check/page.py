"""The reports as one HTML page: tables, the errors over the output as heat maps, timings, snippets."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from oneop.check.console import distinct_failures, finding_text
from oneop.check.results import Finding, Report, Result
from oneop.report import Cell, Code, Figure, Section, Table, Text, write_page


def write(path: Path, reports: Sequence[Report], title: str) -> None:
    """Raises OneopError where the file cannot be written, or matplotlib is missing and a heat map is due."""
    cells = sum(len(report.results) for report in reports)
    failures = sum(len(report.failures) for report in reports)
    said = f"{failures} of {cells} cells failed" if failures else f"none of {cells} cells failed"
    write_page(path, title, said, [section for report in reports for section in _sections(report)])


def _sections(report: Report) -> Iterator[Section]:
    columns = report.columns
    rows = tuple((Cell(row), *(_cell(report.result(row, column)) for column in columns)) for row in report.properties)
    yield Table(report.operator, ("property", *columns), rows, _note(report))
    for result in distinct_failures(report):
        assert result.finding is not None
        yield from _failure(report, result, result.finding)
    slow = sorted(report.results, key=lambda result: -result.seconds)
    timings = tuple(
        (
            Cell(f"{r.property}, {r.column}"),
            Cell(str(r.examples), order=r.examples),
            Cell(f"{r.seconds:.2f} s", order=r.seconds),
        )
        for r in slow
        if r.seconds > 0
    )
    yield Table(f"{report.operator}: time", ("cell", "calls looked at", "time"), timings)


def _note(report: Report) -> str:
    return " ".join(
        [f"Seed {report.seed}, {report.seconds:.0f} s.", *(f"{note.removesuffix('.')}." for note in report.notes)]
    )


def _cell(result: Result | None) -> Cell:
    if result is None:
        return Cell("-")
    if result.status == "passed":
        return Cell(f"passed, {result.examples}" if result.examples else "passed", "passed")
    detail = result.reason if result.finding is None else result.finding.summary
    return Cell(result.status, result.status, detail)


def _failure(report: Report, result: Result, finding: Finding) -> Iterator[Section]:
    title = f"{report.operator}: {result.property}, {result.column}"
    paragraphs = [finding.summary]
    if finding.case is not None:
        paragraphs.append(f"With {finding.case.describe()}.")
    if finding.pattern is not None:
        paragraphs.append(f"What this usually means: {finding.pattern}")
    yield Text(title, tuple(paragraphs))
    yield Code(f"{title}: numbers", finding_text(replace(finding, pattern=None, snippet=None)))
    for name, got, expected in zip(finding.labels, finding.got, finding.expected, strict=False):
        if got.shape == expected.shape and got.numel() > 1:
            yield Figure(f"{title}: error of {name}", _heat(got, expected), "The absolute error over the output.")
    if finding.snippet is not None:
        yield Code(f"{title}: to see it again", finding.snippet)


def _heat(got: Tensor, expected: Tensor) -> str:
    from oneop.report.plots import heat_map

    error = (got.double() - expected.double()).abs()
    error = torch.where(got.double().isnan() & expected.double().isnan(), torch.zeros_like(error), error)
    rows = error.reshape(-1, error.shape[-1]) if error.ndim > 1 else error.reshape(1, -1)
    return heat_map(rows.numpy())
