"""One self-contained HTML page: tables, figures, text and code; no network, dark and light, for screen and paper."""

import base64
import hashlib
import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jinja2
from markupsafe import Markup

from oneop.report import files

Status: TypeAlias = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what it says.
        status: its colour, and a word where the text does not say it itself.
        detail: more to read, folded away.
        order: what the table sorts by in place of the text, as for "300 ns" and "1.2 µs".
    """

    text: str
    status: Status | None = None
    detail: str | None = None
    order: float | None = None

    @property
    def says_status(self) -> bool:
        return self.status is None or self.text.casefold().startswith(self.status)


@dataclass(frozen=True)
class Table:
    """Rows under a head. The first column names the row; a row has as many cells as there are columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | str, ...], ...]
    note: str | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row has {len(row)} cells, and {len(self.columns)} columns")

    @property
    def cells(self) -> list[list[Cell]]:
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]

    @property
    def statuses(self) -> list[str]:
        """Those that occur, in a fixed order: what the table may be filtered by."""
        found = {cell.status for row in self.cells for cell in row}
        return [status for status in ("failed", "skipped", "passed") if status in found]


@dataclass(frozen=True)
class Figure:
    """A plot: ``svg`` is an ``<svg>`` element, as ``oneop.report.plots`` gives it, and goes onto the page as it is."""

    title: str
    svg: str
    note: str | None = None

    def __post_init__(self) -> None:
        if not self.svg.startswith("<svg"):
            raise ValueError(f"figure {self.title!r}: the text does not start with <svg")


@dataclass(frozen=True)
class Text:
    """Paragraphs of plain text."""

    title: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """Text in its own lines, to be copied."""

    title: str
    text: str


Section: TypeAlias = Table | Figure | Text | Code


def write_page(path: Path, title: str, subtitle: str, sections: Sequence[Section]) -> None:
    """Writes one HTML file that needs nothing else: style, script and plots are in it. It appears whole or not at all.

    Everything but ``Figure.svg`` is escaped: names and messages of users may hold anything. Raises OneopError where
    the file cannot be written.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from oneop.report import Cell, Table, write_page
    >>> path = Path(tempfile.mkdtemp()) / "report.html"
    >>> rows = (("values", Cell("passed", "passed")), ("gradients", Cell("off by 0.5", "failed", "at [0, 3]")))
    >>> write_page(path, "demo::scaled_linear", "checked on 2 cores", [Table("Properties", ("", "eager"), rows)])
    >>> path.read_text(encoding="utf-8").count("<table>")
    1
    """
    files.write(Path(path), render(title, subtitle, sections).encode(errors="backslashreplace"), "the page")


def render(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The page as text."""
    style, script = (_resource(name) for name in ("page.css", "page.js"))
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            subtitle=subtitle,
            sections=[_described(number, section) for number, section in enumerate(sections, 1)],
            style=Markup(style),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            version=importlib.metadata.version("oneop"),
        )
    )


def _described(number: int, section: Section) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": f"section-{number}",
        "kind": type(section).__name__.lower(),
        "title": section.title,
        "content": section,
    }
    if isinstance(section, Figure):
        described["svg"] = Markup(_own_names(section.svg, described["id"]))
    return described


def _own_names(svg: str, prefix: str) -> str:
    """The drawing with ids of its own: several of matplotlib's on one page share theirs."""
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    return re.sub(r'(href="#|url\(#)([^")]+)', rf"\g<1>{prefix}-\g<2>", svg)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("oneop.report"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _resource(name: str) -> str:
    return (resources("oneop.report") / "templates" / name).read_text(encoding="utf-8")
