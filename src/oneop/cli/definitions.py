"""The operators of the file that a command was given."""

from pathlib import Path
from typing import Annotated

import typer

from oneop.cli.failures import reported_import, stop
from oneop.operator import Operator
from oneop.registry import load_file

DefinitionFile = Annotated[Path, typer.Argument(metavar="FILE", help="A Python file that defines operators.")]
ChosenOperators = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:OP]",
        help="A Python file that defines operators, and the name of one of them: all of them if none is given.",
    ),
]


def operators_of(file: Path) -> list[Operator]:
    if file.is_dir():
        raise stop(f"{file}: this is a folder. Give the path of a Python file in it that defines operators.")
    with reported_import(file):
        return load_file(file)


def operators_at(given: str) -> list[Operator]:
    """Those of ``FILE`` without its gradient operators, or the one of ``FILE:OP``: ``demo::scale``, or ``scale``."""
    file, name = _parts(given)
    found = [operator for operator in operators_of(file) if not operator.definition.is_gradient]
    if name is None:
        return found
    chosen = [operator for operator in found if name in (operator.definition.name, operator.definition.base)]
    if len(chosen) != 1:
        names = ", ".join(operator.definition.name for operator in found)
        problem = "several operators are" if chosen else "no operator is"
        raise stop(f"{file}: {problem} called `{name}`. Choose one of {names}.")
    return chosen


def _parts(given: str) -> tuple[Path, str | None]:
    """A file may have a colon in its own name, and the drive of a Windows path has one."""
    if Path(given).exists():
        return Path(given), None
    file, found, name = given.partition(".py:")
    return (Path(f"{file}.py"), name or None) if found else (Path(given), None)
