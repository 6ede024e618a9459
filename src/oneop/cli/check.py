"""oneop check: every property of every operator of a file, in every runtime that is here."""

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from oneop.cli.definitions import operators_of
from oneop.cli.failures import reported, stop

if TYPE_CHECKING:
    from rich.progress import Progress

    from oneop.check.companion import Companion
    from oneop.check.results import Report
    from oneop.operator import Operator

EXAMPLES = (
    "Examples: oneop check scaled_linear.py --quick, oneop check scaled_linear.py:scaled_linear --html report.html,"
    " oneop check scaled_linear.py --sanitize. The exit status is 1 where anything failed."
)
Subject = Annotated[
    str,
    typer.Argument(metavar="FILE[:OPERATOR]", help="A Python file that defines operators; one of them, or all."),
]


def command(
    subject: Subject,
    quick: Annotated[bool, typer.Option("--quick", help="About 10 seconds an operator instead of 60.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Decides which calls are made up: the same seed, the same.")] = 0,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="Only this runtime; may be repeated. It has to be there."),
    ] = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Also under AddressSanitizer and UndefinedBehaviorSanitizer.")
    ] = False,
    threads: Annotated[bool, typer.Option("--threads", help="Also under ThreadSanitizer.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report as one HTML page.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the report as JUnit's XML, for CI.")] = None,
) -> None:
    """Check every property of the operators in FILE: values, gradients, shapes, memory, threads, in every runtime."""
    _require_packages()
    if html is not None and junit is not None and html.resolve() == junit.resolve():
        raise stop(f"--html and --junit both name {html}: the second would replace the first. Give two paths.")
    _require_writable(html, junit)
    _keep_out_of_the_way()
    from oneop.check.collecting import rare_collections
    from oneop.check.companion import Companion, is_worth_it

    sanitizers: list[Literal["address", "thread"]] = []
    if sanitize:
        sanitizers.append("address")
    if threads:
        sanitizers.append("thread")
    interruption = _Interruption()
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(interruption)
            stack.enter_context(rare_collections())
            companion = stack.enter_context(Companion()) if is_worth_it(target) else None
            file, operators = _chosen(subject)
            reports = _run(operators, quick, seed, target, sanitizers, companion, interruption)
    except KeyboardInterrupt:
        typer.echo("oneop: interrupted; no report was written", err=True)
        raise typer.Exit(130) from None
    with reported():
        if html is not None:
            from oneop.check import page

            page.write(html, reports, f"oneop check {file.name}")
            typer.echo(f"wrote {html}")
        if junit is not None:
            from oneop.check import junit as xml

            xml.write(junit, reports)
            typer.echo(f"wrote {junit}")
    failures = sum(len(report.failures) for report in reports)
    cells = sum(len(report.results) for report in reports)
    typer.echo(_failed(reports, cells, failures) if failures else _fine(reports, cells))
    raise typer.Exit(1 if failures else 0)


def _failed(reports: "Sequence[Report]", cells: int, failures: int) -> str:
    return f"{_counted(len(reports), 'operator')}, {_counted(cells, 'cell')}, {failures} failed"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _fine(reports: "Sequence[Report]", cells: int) -> str:
    skipped = sum(result.status == "skipped" for report in reports for result in report.results)
    return f"{_counted(len(reports), 'operator')}: nothing failed ({cells - skipped} cells passed, {skipped} skipped)"


def _chosen(subject: str) -> "tuple[Path, list[Operator]]":
    """The operators that are named; all of the file, but for gradients, where none is."""
    path, name = _split(subject)
    found = operators_of(path)
    if name is None:
        return path, [operator for operator in found if not operator.definition.is_gradient]
    chosen = [operator for operator in found if name in (operator.definition.name, operator.definition.base)]
    if not chosen:
        known = ", ".join(operator.definition.base for operator in found)
        raise stop(f"{path} defines no operator {name!r}. Name one of {known}.")
    return path, chosen


def _split(subject: str) -> tuple[Path, str | None]:
    """The file and the operator: at the first colon that has a file before it."""
    if Path(subject).exists():
        return Path(subject), None
    parts = subject.split(":")
    for count in range(1, len(parts)):
        path = Path(":".join(parts[:count]))
        if path.is_file():
            return path, ":".join(parts[count:])
    return Path(subject.partition(":")[0]), None


def _require_packages() -> None:
    if importlib.util.find_spec("hypothesis") is None:
        raise stop("oneop check needs hypothesis, which is not installed. Run `pip install 'oneop[check]'`.")


def _require_writable(*paths: Path | None) -> None:
    """Before the work is done, not after."""
    from oneop.report import files

    with reported():
        for path, what in zip(paths, ("the page", "the JUnit file"), strict=True):
            if path is not None:
                files.require_writable(path, what)


def _run(
    operators: "Sequence[Operator]",
    quick: bool,
    seed: int,
    targets: Sequence[str] | None,
    sanitizers: Sequence[Literal["address", "thread"]],
    companion: "Companion | None",
    interruption: "_Interruption",
) -> "list[Report]":
    from rich.console import Console

    from oneop.check.console import NARROWEST, print_report

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, NARROWEST))
    reports = []
    for operator in operators:
        with _progress() as progress:
            report = _checked(operator, quick, seed, targets, sanitizers, companion, interruption, progress)
        print_report(report, console)
        console.print()
        reports.append(report)
    return reports


def _keep_out_of_the_way() -> None:
    """hypothesis notes what it read of the source: not in the folder that the user is in."""
    from oneop.kernels.cache import cache_root

    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache_root() / "hypothesis"))


class _Interruption:
    """Ctrl-C while something runs that swallows exceptions, as callbacks of the garbage collector do: it is raised
    again at the next cell.
    """

    def __enter__(self) -> "_Interruption":
        self.came = False
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: object) -> None:
        self.came = True
        raise KeyboardInterrupt

    def raise_again(self) -> None:
        """In the main thread; others are not to be interrupted."""
        if self.came and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[operator]}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _checked(
    operator: "Operator",
    quick: bool,
    seed: int,
    targets: Sequence[str] | None,
    sanitizers: Sequence[Literal["address", "thread"]],
    companion: "Companion | None",
    interruption: "_Interruption",
    progress: "Progress",
) -> "Report":
    """A mistake in the definition's examples or constraints, or an unknown target, is a failure of its own."""
    from oneop.check.results import Finding, Report, Result
    from oneop.check.running import check
    from oneop.errors import OneopError

    task = progress.add_task("", total=None, operator=operator.definition.name)

    def show(what: str, done: int, total: int) -> None:
        interruption.raise_again()
        progress.update(task, description=what, completed=done, total=total)

    try:
        return check(
            operator,
            quick=quick,
            seed=seed,
            targets=targets,
            sanitizers=sanitizers,
            companion=companion,
            on_progress=show,
        )
    except OneopError as error:
        result = Result("the check itself", "definition", "failed", finding=Finding(str(error)))
        return Report(operator.definition.name, (result,), seed, 0.0)
