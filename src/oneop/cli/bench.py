"""oneop bench: an operator's speed in every runtime, against its reference and against this machine."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneop.cli.definitions import ChosenOperators, operators_at
from oneop.cli.failures import reported
from oneop.errors import OneopError

if TYPE_CHECKING:
    from oneop.bench.results import Report
    from oneop.bench.running import Options
    from oneop.operator import Operator

EXAMPLES = (
    "Examples: oneop bench scaled_linear.py, oneop bench scaled_linear.py:scaled_linear --size n=1024,k=64 --threads 1"
    " --html speed.html. The exit status is 1 where a column is wrong or fails, or something of a --target is missing."
)


def command(
    operators: ChosenOperators,
    size: Annotated[
        list[str] | None, typer.Option(help="Sizes by name, such as n=1024,k=64 or batch=8x16; may be repeated.")
    ] = None,
    sizes: Annotated[str | None, typer.Option(help="What the other names take in turn, such as 64,256,1024.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Such as float64; float32 if not given.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An attribute's value, such as alpha=0.5; may be repeated.")
    ] = None,
    without: Annotated[list[str] | None, typer.Option(help="An optional input to leave out; may be repeated.")] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            help="pytorch, onnxruntime, ..., or a column: eager, compiled, kernel, onnxruntime-native; repeatable.",
        ),
    ] = None,
    threads: Annotated[str | None, typer.Option(help="Such as 1,4; one and all if not given.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0.001, max=60, help="How long each column is timed at each size.")
    ] = 0.2,
    backward: Annotated[bool, typer.Option(help="Also measure forward together with backward.")] = True,
    plot: Annotated[Path | None, typer.Option(help="Write a plot, a PNG file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with tables and plots.")] = None,
    json_: Annotated[
        str | None, typer.Option("--json", help="Write the figures as JSON to a file, or with - to stdout.")
    ] = None,
) -> None:
    """Compare the kernels of FILE with their references, and time them in every runtime."""
    found = operators_at(operators)
    with reported():
        from oneop.bench import running
        from oneop.bench import sizes as reading

        _require_outputs(plot, html, json_)
        options = running.Options(
            given=[reading.parse_size(text) for text in size or ()],
            each=reading.parse_sizes(sizes) if sizes is not None else (),
            dtype=dtype,
            attributes=_attributes(set_ or ()),
            absent=without or (),
            targets=target or (),
            threads=_threads(threads),
            seconds=seconds,
            backward=backward,
        )
        report = _run(found, options)
        _show(report, to_stderr=json_ == "-")
        _write(report, plot, html, json_)
    if report.complaints:
        for complaint in report.complaints:
            typer.echo(f"oneop: {complaint}", err=True)
        raise typer.Exit(1)


def _require_outputs(plot: Path | None, html: Path | None, json_: str | None) -> None:
    """Minutes of measuring are not to end in a file that cannot be written."""
    from oneop.report import files, plots

    if plot is not None or html is not None:
        plots.require_matplotlib()
    if plot is not None and plot.suffix.lower() != ".png":
        raise OneopError(f"--plot {plot}: the plot is a PNG file. Give a path that ends in .png.")
    for path, what in ((plot, "the plot"), (html, "the page"), (_file(json_), "the figures")):
        if path is not None:
            files.require_writable(path, what)


def _file(json_: str | None) -> Path | None:
    return None if json_ is None or json_ == "-" else Path(json_)


def _attributes(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, value = _pair(text)
        if name in found:
            raise OneopError(
                f"--set {text}: `{name}` is given twice, and was {found[name]} before. Give it once; a list is one"
                f" value, such as --set {name}=1,2."
            )
        found[name] = value
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise OneopError(f"--set {text}: this is no attribute and value. Write for example --set alpha=0.5.")
    return name.strip(), value


def _threads(text: str | None) -> list[int]:
    if text is None:
        return []
    counts = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if not all(0 < count <= 1024 for count in counts):
        raise OneopError(f"--threads {text}: write numbers from 1, such as --threads 1,4.")
    return list(dict.fromkeys(counts))


def _run(operators: "list[Operator]", options: "Options") -> "Report":
    """With a bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from oneop.bench.running import bench

    fields = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    console = Console(stderr=True)
    with Progress(*fields, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)

        def step(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        return bench(operators, options, step)


def _show(report: "Report", to_stderr: bool) -> None:
    from rich.console import Console

    from oneop.bench import showing

    console = Console(stderr=to_stderr, highlight=False, markup=False)
    for sentence in showing.about(report):
        console.print(sentence, soft_wrap=True)
    for table in showing.tables(report):
        console.print()
        console.print(table.title, style="bold")
        console.print(showing.rich_table(table))
        if table.note:
            console.print(table.note, soft_wrap=True)
        for reason in dict.fromkeys(showing.reasons(table)):
            console.print(reason, soft_wrap=True)


def _write(report: "Report", plot: Path | None, html: Path | None, json_: str | None) -> None:
    from oneop.bench import showing
    from oneop.report import files

    text = json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n"
    if json_ == "-":
        typer.echo(text, nl=False)
    elif json_ is not None:
        files.write(Path(json_), text.encode(), "the figures")
    if plot is not None and any(True for _ in showing.plots(report)):
        showing.save_plot(report, plot)
    elif plot is not None:
        typer.echo(f"oneop: nothing was measured, so {plot} was not written.", err=True)
    if html is not None:
        showing.save_page(report, html)
