"""oneop inspect: what an ONNX file needs to run, in each runtime, and the same file rewritten for another one."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oneop.cli.failures import reported, reported_import, stop

if TYPE_CHECKING:
    from oneop.inspection.examining import Inspection, Judged
    from oneop.inspection.facts import Attribute, Node, Value
    from oneop.inspection.judging import Verdict

EXAMPLES = (
    "Example: oneop inspect model.onnx --library build/libscaled_linear_onnxruntime.so --definitions scaled_linear.py"
    "  The exit status is 1 where a library or a definition does not fit the file, or the file is damaged."
)
_STYLES = {"kernel": "green", "function": "green", "no": "red", "unknown": "yellow"}
_MOST_ROWS = 50


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file, of any origin.")],
    library: Annotated[
        list[Path] | None,
        typer.Option("--library", "-l", help="A library that oneop build wrote, for any runtime; may be repeated."),
    ] = None,
    definitions: Annotated[
        list[Path] | None,
        typer.Option("--definitions", "-d", help="A Python file that defines operators; may be repeated."),
    ] = None,
    strip: Annotated[bool, typer.Option("--strip", help="Remove the functions: each node needs a kernel.")] = False,
    inline: Annotated[
        bool, typer.Option("--inline", help="Put the functions' bodies in the place of the nodes that call them.")
    ] = False,
    add_functions: Annotated[
        list[Path] | None,
        typer.Option(
            "--add-functions", metavar="FILE", help="Add the functions of the operators that this Python file defines."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="With --strip and --inline: this domain or operator only; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the rewritten file goes; whole or not at all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what MODEL needs to run: its operators outside the standard, and what each runtime makes of them.

    With --strip, --inline or --add-functions, writes the model for another runtime to --output, and shows that one.
    """
    _require_one_rewrite(strip, inline, add_functions, only, output)
    if add_functions is not None:
        definitions = [*(definitions or ()), *add_functions]
    for file in definitions or ():
        _import(file)
    from oneop.inspection import rewriting
    from oneop.inspection.examining import inspect

    with reported():
        if output is not None:
            if strip:
                done, word = rewriting.strip(model, output, only or ()), "without the functions of"
            elif inline:
                done, word = rewriting.inline(model, output, only or ()), "with the functions inlined of"
            else:
                done, word = rewriting.add_functions(model, add_functions or (), output), "with functions added for"
            model = done.path
            if not as_json:
                typer.echo(f"{output}: written, {word} {_some(done.operators)}\n")
        found = inspect(model, library or (), definitions or ())
    if as_json:
        typer.echo(json.dumps(_as_json(found), indent=2, ensure_ascii=True))
    else:
        _print(found)
    raise typer.Exit(1 if found.faults else 0)


def _require_one_rewrite(
    strip: bool, inline: bool, add_functions: list[Path] | None, only: list[str] | None, output: Path | None
) -> None:
    asked = [
        name
        for name, given in (("--strip", strip), ("--inline", inline), ("--add-functions", add_functions is not None))
        if given
    ]
    if len(asked) > 1:
        raise stop(f"{' and '.join(asked)} are two changes. Make one, and then the other of the new file.")
    if asked and (output is None or not str(output).strip() or str(output) == "."):
        raise stop(f"{asked[0]} writes a new file: say where with --output NEW.onnx.")
    if output is not None and not asked:
        raise stop("--output is for a rewritten file: give --strip, --inline or --add-functions FILE with it.")
    if only and not (strip or inline):
        raise stop("--only limits --strip and --inline; give one of them with it.")


def _import(file: Path) -> None:
    from oneop.registry import load_file

    if file.is_dir():
        raise stop(f"{file}: this is a folder. Give the path of a Python file in it that defines operators.")
    with reported_import(file):
        load_file(file)


# What people read. Names come from the file: whatever is in them, they are shown as text.


def _print(found: "Inspection") -> None:
    console = Console(highlight=False, soft_wrap=False)
    file = found.file
    producer = f", by {_text(file.producer)}" if file.producer else ""
    opset = file.opset_imports.get("", file.opset_imports.get("ai.onnx"))
    nodes = "1 node" if file.node_count == 1 else f"{file.node_count:,} nodes"
    console.print(
        f"{_text(str(file.path))}: {nodes}, opset {opset if opset is not None else 'unknown'}, "
        f"IR version {file.ir_version if file.ir_version is not None else 'unknown'}{producer}"
    )
    if not found.operators:
        console.print(
            "Every node is of ONNX's standard domain: any runtime that has this opset runs it, without oneop."
        )
    else:
        console.print()
        console.print(_verdicts(found))
        console.print()
        console.print(_nodes(found.operators))
        _print_remedies(found)
    for note in found.notes:
        console.print(f"\n[yellow]Note:[/yellow] {_text(note)}")
    for fault in found.faults:
        console.print(f"\n[red]Does not fit:[/red] {_text(fault)}")


def _verdicts(found: "Inspection") -> Table:
    table = Table("operator", "nodes", *(runtime.title for runtime in found.runtimes), box=None, pad_edge=False)
    for item in found.operators[:_MOST_ROWS]:
        cells = [_cell(item.verdicts[runtime.target]) for runtime in found.runtimes]
        function = " (function in the file)" if item.has_function else ""
        table.add_row(_text(str(item.operator.identifier)) + function, f"{item.operator.count:,}", *cells)
    if len(found.operators) > _MOST_ROWS:
        table.add_row(f"... {len(found.operators) - _MOST_ROWS:,} more: --json has them")
    return table


def _cell(verdict: "Verdict") -> str:
    from oneop.inspection.judging import WORDS

    return f"[{_STYLES[verdict.status]}]{WORDS[verdict.status]}[/]"


def _nodes(operators: "Iterable[Judged]") -> Table:
    table = Table("node", "attributes", "inputs", "outputs", box=None, pad_edge=False)
    nodes = [(item, node) for item in operators for node in item.operator.nodes]
    for item, node in nodes[:_MOST_ROWS]:
        table.add_row(*_row(item, node))
    if len(nodes) > _MOST_ROWS:
        table.add_row(f"... {len(nodes) - _MOST_ROWS:,} more: --json has them")
    return table


def _row(item: "Judged", node: "Node") -> Iterable[str]:
    yield f"{_text(str(item.operator.identifier))} {_text(node.name)}\n[dim]{_text(node.place)}[/dim]"
    yield "\n".join(_attribute(attribute) for attribute in node.attributes)
    yield "\n".join(_value(value) for value in node.inputs)
    yield "\n".join(_value(value) for value in node.outputs)


def _attribute(attribute: "Attribute") -> str:
    value = attribute.value
    if attribute.count is not None:
        entries = [_text(entry if isinstance(entry, str) else repr(entry)) for entry in (value or ())[:8]]
        more = f", ... ({attribute.count:,})" if attribute.count > len(entries) else ""
        return f"{_text(attribute.name)} = \\[{', '.join(entries)}{more}]"
    is_string = attribute.kind == "string" and isinstance(value, str)
    return f"{_text(attribute.name)} = {_text(repr(value) if is_string else str(value))}"


def _value(value: "Value") -> str:
    if not value.name:
        return "absent"
    return f"{_text(value.name)}: {_text(value.type) if value.type else 'type not stated'}"


def _print_remedies(found: "Inspection") -> None:
    """Plain lines: a command is there to be copied, and rich would wrap it."""
    for runtime in found.runtimes:
        lines = []
        for item in found.operators[:_MOST_ROWS]:
            verdict = item.verdicts[runtime.target]
            lines.append(f"  {_plain(str(item.operator.identifier))}: {_plain(verdict.because)}")
            if verdict.remedy:
                lines.append(f"      {_plain(verdict.remedy)}")
        typer.echo(f"\n{runtime.title}")
        typer.echo("\n".join(lines))


def _text(text: str) -> str:
    return escape(_plain(text))


def _plain(text: str) -> str:
    from oneop.inspection.reading import shown

    return shown(text, 2000)


def _some(names: tuple[str, ...]) -> str:
    return _plain(", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else ""))


# What programs read.


def _as_json(found: "Inspection") -> dict[str, Any]:
    file = found.file
    return {
        "file": str(file.path),
        "ir_version": file.ir_version,
        "producer": file.producer,
        "opset_imports": file.opset_imports,
        "node_count": file.node_count,
        "external_data": sorted(file.external),
        "fingerprints": file.fingerprints,
        "functions": [str(name) for name in file.functions],
        "operators": [_operator_as_json(item) for item in found.operators],
        "libraries": [
            {"path": str(item.path), "targets": list(item.targets), "fingerprints": item.fingerprints}
            for item in found.libraries
        ],
        "definitions": [
            {"file": str(item.file), "name": item.name, "fingerprint": item.fingerprint} for item in found.definitions
        ],
        "faults": list(found.faults),
        "notes": list(found.notes),
    }


def _operator_as_json(item: "Judged") -> dict[str, Any]:
    identifier = item.operator.identifier
    return {
        "domain": identifier.domain,
        "type": identifier.type,
        "overload": identifier.overload,
        "operator": item.names[0] if item.names else None,
        "fingerprint": item.fingerprint,
        "has_function": item.has_function,
        "is_called": item.is_called,
        "count": item.operator.count,
        "nodes": [asdict(node) for node in item.operator.nodes],
        "runtimes": {target: asdict(verdict) for target, verdict in item.verdicts.items()},
    }
