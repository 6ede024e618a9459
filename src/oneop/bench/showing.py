"""A report for people: the tables of the terminal, the page, the plots."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import rich.box
import rich.table
from rich.text import Text as Styled

from oneop.bench.memory import shown
from oneop.bench.results import BACKWARD, FORWARD, Machine, Measured, Pass, Report, Row, Work
from oneop.report import Cell, Figure, Section, Table, Text, write_page
from oneop.report.plots import Bars, Line, Lines, Plot, save_png, svg

COLUMNS = ("size", "what", "median", "IQR", "against eager", "GB/s", "of memory", "GFLOP/s", "of cores")

UNSTEADY = 0.5
"""From this share of the median on, a spread says that the figure is not to be trusted."""

EXPLANATION = (
    "Each column was compared with the reference in float64 before it was timed: one that is wrong has no time.",
    "The median and the interquartile range (IQR) are of one call. GB/s counts each tensor that goes in or comes out"
    " once; what fits into a cache can be faster than memory. GFLOP/s counts the additions and multiplications of the"
    " reference, whatever the column itself does; behind ≥ stands a lower bound, where the reference also does what has"
    " no agreed count.",
)


def tables(report: Report) -> Iterator[Table]:
    """One for each operator, pass and number of threads."""
    for measured, kind, threads in _views(report):
        rows = [row for row in measured.rows if (row.kind, row.threads) == (kind, threads)]
        if rows or kind == FORWARD:
            yield _table(report, measured, kind, threads, rows)


def _views(report: Report) -> Iterator[tuple[Measured, Pass, int]]:
    for measured in report.operators:
        for kind in (FORWARD, BACKWARD):
            for threads in dict.fromkeys(machine.threads for machine in report.machines):
                yield measured, kind, threads


def _title(measured: Measured, kind: Pass, threads: int) -> str:
    return f"{measured.operator}, {kind}, {threads} thread{'s' if threads > 1 else ''}"


def _table(report: Report, measured: Measured, kind: Pass, threads: int, rows: Sequence[Row]) -> Table:
    lines: list[tuple[Cell | str, ...]] = []
    for size in measured.sizes:
        here = [row for row in rows if row.size == size]
        lines += [_line(report, measured, row) for row in here]
    blank = ("-",) * (len(COLUMNS) - 3)
    lines += [
        ("every size", item.title, Cell("missing", "skipped", item.reason), *blank)
        for item in measured.missing.values()
        if kind == FORWARD
    ]
    note = " ".join([_note(measured, kind), *_unsteady(rows)])
    return Table(_title(measured, kind, threads), COLUMNS, tuple(lines), note)


def _line(report: Report, measured: Measured, row: Row) -> tuple[Cell | str, ...]:
    if row.timing is None:
        status = Cell("wrong" if row.status == "wrong" else "failed", "failed", row.reason)
        return (row.size, row.title, status, *("-",) * (len(COLUMNS) - 3))
    seconds = row.timing.median
    work = measured.work[row.size, row.kind]
    machine = report.machine(row.threads, _dtype(report, measured))
    eager = measured.row("eager", row.size, row.threads, row.kind)
    faster = None if eager is None or eager.timing is None else eager.timing.median / seconds
    return (
        row.size,
        row.title,
        Cell(duration(seconds), order=seconds),
        Cell(duration(row.timing.spread), order=row.timing.spread),
        "-" if faster is None else Cell(f"{faster:.2f}x", order=faster),
        Cell(f"{work.bytes / seconds / 1e9:.3g}", order=work.bytes / seconds),
        _percent(work.bytes / seconds, machine.bandwidth),
        *_arithmetic(work, seconds, machine),
    )


def _dtype(report: Report, measured: Measured) -> str:
    there = {machine.dtype for machine in report.machines}
    floating = [dtype for dtype in measured.dtypes.values() if dtype in there]
    return floating[0]


def _arithmetic(work: Work, seconds: float, machine: Machine) -> tuple[Cell | str, Cell | str]:
    if work.flops is None:
        return "unknown", "-"
    rate = work.flops / seconds
    bound = "≥ " if work.uncounted else ""
    cell = Cell(f"{bound}{rate / 1e9:.3g}", order=rate)
    return cell, "-" if machine.arithmetic is None else _percent(rate, machine.arithmetic)


def _percent(rate: float, best: float) -> Cell:
    share = rate / best
    return Cell(f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}", order=share)


def _note(measured: Measured, kind: Pass) -> str:
    parts = [f"{', '.join(f'{name}: {dtype}' for name, dtype in measured.dtypes.items())}."]
    if measured.attributes:
        parts.append(f"{', '.join(f'{name}={value!r}' for name, value in measured.attributes.items())}.")
    if measured.absent:
        parts.append(f"Without {', '.join(measured.absent)}.")
    uncounted = dict.fromkeys(
        name for (_, pass_), work in measured.work.items() if pass_ == kind for name in work.uncounted
    )
    if uncounted:
        parts.append(f"Not counted in GFLOP/s, since they have no agreed count: {', '.join(uncounted)}.")
    return " ".join([*parts, *measured.notes])


def _unsteady(rows: Sequence[Row]) -> Iterator[str]:
    timings = [row.timing for row in rows if row.timing is not None]
    wide = sum(timing.spread > UNSTEADY * timing.median for timing in timings)
    if wide:
        yield (
            f"In {wide} of {len(timings)} rows the IQR is more than half of the median: other programs use this"
            " machine. Run again when it is quiet, or with a larger --seconds."
        )


_SPACE = "\N{NO-BREAK SPACE}"


def duration(seconds: float) -> str:
    """Three digits and a unit: 12.3 µs."""
    for scale, unit in ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms")):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.3g}{_SPACE}{unit}"
    return f"{seconds:.3g}{_SPACE}s"


def about(report: Report) -> list[str]:
    """The machine, in sentences."""
    found = [", ".join(f"{name} {version}" for name, version in report.versions.items()) + "."]
    for machine in report.machines:
        cores = (
            f"; a product of matrices in {machine.dtype} {machine.arithmetic / 1e9:.3g} GFLOP/s"
            if machine.arithmetic is not None
            else ""
        )
        threads = f"{machine.threads} thread{'s' if machine.threads > 1 else ''}"
        found.append(f"Measured a moment before with {threads}: memory (triad) {shown(machine.bandwidth)}/s{cores}.")
    return found


def rich_table(table: Table) -> rich.table.Table:
    """For a terminal of 80 columns. Reasons stand below the table, where there is room for them."""
    made = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=0)
    for column in table.columns[1:]:
        is_name = column == "what"
        made.add_column(column.replace(" ", "\n"), justify="left" if is_name else "right", no_wrap=not is_name)
    before = None
    for row in table.cells:
        if row[0].text != before:
            if before is not None:
                made.add_section()
            made.add_row(Styled(row[0].text, "bold"))
        made.add_row(*(Styled(cell.text, _STYLES.get(cell.status or "", "")) for cell in row[1:]))
        before = row[0].text
    return made


_STYLES = {"failed": "bold red", "skipped": "yellow"}


def reasons(table: Table) -> Iterator[str]:
    """What the cells of a table have to say beyond their word."""
    for row in table.cells:
        for cell in row:
            if cell.detail is not None:
                yield f"{row[1].text}, {row[0].text}: {cell.text}: {cell.detail}"


def plots(report: Report) -> Iterator[Plot]:
    """One for each operator, pass and number of threads: the time of a call at each size, or in bars at one size."""
    for measured, kind, threads in _views(report):
        rows = [row for row in measured.rows if (row.kind, row.threads) == (kind, threads) and row.timing is not None]
        sizes = [size for size in measured.sizes if any(row.size == size for row in rows)]
        if rows:
            title = _title(measured, kind, threads)
            yield _bars(title, rows, sizes[0]) if len(sizes) == 1 else _lines(title, rows, measured, sizes, kind)


def _bars(title: str, rows: Sequence[Row], size: str) -> Bars:
    medians = {size: [row.timing.median for row in rows if row.timing is not None]}
    return Bars([row.title for row in rows], medians, "time of a call", title=title, y_unit="s")


def _lines(title: str, rows: Sequence[Row], measured: Measured, sizes: Sequence[str], kind: Pass) -> Lines:
    order = sorted(sizes, key=lambda size: measured.work[size, kind].bytes)
    lines = []
    for name in dict.fromkeys(row.title for row in rows):
        own = sorted((row for row in rows if row.title == name), key=lambda row: order.index(row.size))
        timings = [row.timing for row in own if row.timing is not None]
        lines.append(
            Line(
                name,
                [order.index(row.size) for row in own],
                [timing.median for timing in timings],
                [timing.low for timing in timings],
                [timing.high for timing in timings],
            )
        )
    ticks: dict[float, str] = {
        place: f"{size}\n{shown(measured.work[size, kind].bytes)} in and out" for place, size in enumerate(order)
    }
    return Lines(lines, "", "time of a call", title, log_x=False, y_unit="s", x_ticks=ticks)


def save_plot(report: Report, path: Path) -> None:
    """Writes a PNG file. Raises OneopError where matplotlib is missing or nothing was measured."""
    save_png(path, *plots(report))


def save_page(report: Report, path: Path) -> None:
    """Writes an HTML page. Raises OneopError where matplotlib is missing."""
    sections: list[Section] = [Text("What was measured", (*about(report), *EXPLANATION))]
    if report.complaints:
        sections.append(Text("What went wrong", tuple(report.complaints)))
    sections += [Figure(f"Plot of {plot.title}", svg(replace(plot, title=""))) for plot in plots(report)]
    sections += tables(report)
    names = ", ".join(measured.operator for measured in report.operators)
    write_page(path, f"{names}: how fast", "oneop bench", sections)
