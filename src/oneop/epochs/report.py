"""What a watch shows: a table on the terminal, plots, and the HTML page. All three are made of the same columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from oneop import report as page
from oneop.epochs import words
from oneop.epochs.records import Diagnosis, Epoch
from oneop.report import plots

PHASES = ("data", "forward", "backward", "optimizer", "other")
MOST_OPERATORS = 10


@dataclass(frozen=True)
class Column:
    """One figure of every epoch; None means that it is not known. A column without figures is left out."""

    head: str
    value: Callable[[Epoch], float | None]
    write: Callable[[float], str]
    always: bool = False


def _number(value: float) -> str:
    return f"{value:.0f}"


def _share(value: float) -> str:
    return f"{value:.1%}"


def _denormal_share(epoch: Epoch) -> float | None:
    shares = epoch.denormals
    if shares is None:
        return None
    known = [each for each in (shares.parameters, shares.gradients, shares.optimizer_state) if each is not None]
    return max(known, default=None)


COLUMNS = (
    Column("epoch", lambda epoch: epoch.number, _number, always=True),
    Column("steps", lambda epoch: epoch.steps, _number, always=True),
    Column("time", lambda epoch: epoch.seconds, words.seconds, always=True),
    Column("data", lambda epoch: epoch.data, words.seconds, always=True),
    Column("forward", lambda epoch: epoch.forward, words.seconds, always=True),
    Column("backward", lambda epoch: epoch.backward, words.seconds, always=True),
    Column("optimizer", lambda epoch: epoch.optimizer, words.seconds, always=True),
    Column("other", lambda epoch: epoch.other, words.seconds, always=True),
    Column("compiling", lambda epoch: epoch.compiling, words.seconds),
    Column("gc", lambda epoch: epoch.collector, words.seconds),
    Column("memory", lambda epoch: epoch.resident_bytes, words.size, always=True),
    Column("tensors", lambda epoch: epoch.live_tensors, _number),
    Column("graphs", lambda epoch: epoch.kept_graphs, _number),
    Column("nodes", lambda epoch: epoch.autograd_nodes, _number),
    Column("hooks", lambda epoch: epoch.hooks, _number),
    Column("from disk", lambda epoch: epoch.disk_bytes, words.size),
    Column("swapped", lambda epoch: epoch.system_swap_bytes, words.size),
    Column("denormal", _denormal_share, _share),
    Column("threads", lambda epoch: epoch.threads, _number, always=True),
)


def show(epochs: Sequence[Epoch], diagnoses: Sequence[Diagnosis], verdict: str) -> None:
    """Prints to the terminal. Tables are as wide as they need to be: cut figures would say something else."""
    console = Console(highlight=False)
    for table in (
        _drawn(*epoch_table(epochs), "Epochs"),
        _drawn(*operator_table(epochs), "Operators, one step of an epoch"),
    ):
        if table.row_count:
            width = Console(width=1000).measure(table).maximum
            Console(width=max(console.width, width), highlight=False).print(table)
    console.print()
    console.print(RichText(verdict, style="bold"), soft_wrap=True)
    for diagnosis in diagnoses:
        style = "red" if diagnosis.severity == "problem" else "cyan"
        console.print()
        console.print(
            RichText.assemble((f"{diagnosis.severity}: ", f"bold {style}"), diagnosis.summary), soft_wrap=True
        )
        for line in details(diagnosis):
            console.print(RichText(f"  {line}"), soft_wrap=True)


def details(diagnosis: Diagnosis) -> list[str]:
    """The lines under a diagnosis: where, how that is known, what to do."""
    where = [
        f"at {place.file}, line {place.line}: {place.code or place.name}" for place in diagnosis.places if place.line
    ]
    return [*where, *(f"- {line}" for line in diagnosis.evidence), f"do: {diagnosis.remedy}"]


def epoch_table(epochs: Sequence[Epoch]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows, without columns that say nothing."""
    shown = [column for column in COLUMNS if column.always or any(column.value(epoch) for epoch in epochs)]
    rows = []
    for epoch in epochs:
        values = [column.value(epoch) for column in shown]
        rows.append(["-" if v is None else column.write(v) for column, v in zip(shown, values, strict=True)])
    return [column.head for column in shown], rows


def operator_table(epochs: Sequence[Epoch]) -> tuple[list[str], list[list[str]]]:
    """The operators that took longest, in the first and in the last epoch in which a step was sampled."""
    sampled = [epoch for epoch in epochs if epoch.operators]
    if not sampled:
        return ["operator"], []
    first, last = sampled[0], sampled[-1]
    before = {item.name: item for item in first.operators}
    heads = ["operator", "calls", f"epoch {last.number}", *([f"epoch {first.number}"] if first is not last else [])]
    rows = []
    for item in last.operators[:MOST_OPERATORS]:
        earlier = before.get(item.name)
        then = [words.seconds(earlier.seconds) if earlier else "-"] if first is not last else []
        rows.append([item.name, str(item.calls), words.seconds(item.seconds), *then])
    return heads, rows


def write_png(path: Path, epochs: Sequence[Epoch]) -> None:
    plots.save_png(path, *_plots(epochs))


def write_html(path: Path, epochs: Sequence[Epoch], diagnoses: Sequence[Diagnosis], verdict: str) -> None:
    sections: list[page.Section] = [page.Text("Diagnosis", (verdict,))]
    for diagnosis in diagnoses:
        title = f"{diagnosis.severity}: {diagnosis.kind}"
        sections.append(page.Text(title, (diagnosis.summary, *details(diagnosis))))
    phases, alive = _plots(epochs)
    sections.append(page.Figure("Time by phase", plots.svg(phases)))
    sections.append(page.Figure("What stays alive", plots.svg(alive)))
    for title, (heads, rows) in (
        ("Epochs", epoch_table(epochs)),
        ("Operators, one step of an epoch", operator_table(epochs)),
    ):
        if rows:
            sections.append(page.Table(title, tuple(heads), tuple(tuple(row) for row in rows)))
    page.write_page(path, "oneop epochs", f"{words.count(len(epochs), 'epoch')} watched", sections)


def _plots(epochs: Sequence[Epoch]) -> tuple[plots.Bars, plots.Lines]:
    numbers = [float(epoch.number) for epoch in epochs]
    phases = {phase: [getattr(epoch, phase) for epoch in epochs] for phase in PHASES}
    start = epochs[0]
    ticks = {float(epoch.number): str(epoch.number) for epoch in epochs[:: max(1, -(-len(epochs) // 20))]}

    def relative(name: str, value: Callable[[Epoch], float]) -> plots.Line:
        return plots.Line(name, numbers, [value(epoch) / max(value(start), 1) for epoch in epochs])

    measures = (
        relative("resident memory", lambda epoch: epoch.resident_bytes),
        relative("graphs", lambda epoch: epoch.kept_graphs),
        relative("autograd nodes", lambda epoch: epoch.autograd_nodes),
        relative("hooks", lambda epoch: epoch.hooks),
    )
    alive = [line for line in measures if any(line.y)]
    return (
        plots.Bars([str(epoch.number) for epoch in epochs], phases, "time", x_label="epoch", stacked=True, y_unit="s"),
        plots.Lines(alive, "epoch", "times epoch 1", log_x=False, log_y=False, x_ticks=ticks),
    )


def _drawn(heads: list[str], rows: list[list[str]], title: str) -> RichTable:
    table = RichTable(title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="left" if head == "operator" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(RichText(cell) for cell in row))
    return table
