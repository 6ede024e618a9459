"""make bench: measures oneop against hand-written code, prints one table, and fails where a bound is exceeded.

`python -m benchmarks pytorch` (or onnxruntime, or epochs) measures one part.
"""

import importlib
import sys
from collections.abc import Iterable, Sequence

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Row

PARTS = ("pytorch", "onnxruntime", "epochs")


def main(parts: Sequence[str]) -> int:
    unknown = sorted({*parts} - {*PARTS})
    if unknown:
        print(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    console = Console()
    rows: list[Row] = []
    for part in parts or PARTS:
        with console.status(f"measuring {part}; the peers are compiled first"):
            rows += importlib.import_module(f"benchmarks.{part}").rows()
    console.print("\nmedians within one run, one thread", highlight=False)
    Console(width=max(console.width, 120)).print(table(rows))
    for row in rows:
        if not row.holds:
            print(f"{row.what} exceeds its bound", file=sys.stderr)
    return 0 if all(row.holds for row in rows) else 1


def table(rows: Iterable[Row]) -> Table:
    """In Markdown, so that a run can be pasted into the README."""
    drawn = Table("what", "oneop", "against", "takes", "ratio", "at most", box=box.MARKDOWN)
    for row in rows:
        measured = row.measured
        figures = ["-", "-", "-", duration(row.bound)]
        if measured.peer is not None:
            figures = [row.against, duration(measured.peer), f"{measured.ratio:.2f}", f"{row.bound:.2f}"]
        drawn.add_row(row.what, duration(measured.ours), *figures, style=None if row.holds else "red")
    for column in drawn.columns:
        column.no_wrap = True
    return drawn


def duration(seconds: float) -> str:
    """Three digits with a unit: 1.84 µs, 12.0 s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
