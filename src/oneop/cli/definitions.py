"""The operators of the file that a command was given."""

from pathlib import Path
from typing import Annotated

import typer

from oneop.cli.failures import reported_import, stop
from oneop.operator import Operator
from oneop.registry import load_file

DefinitionFile = Annotated[Path, typer.Argument(metavar="FILE", help="A Python file that defines operators.")]


def operators_of(file: Path) -> list[Operator]:
    if file.is_dir():
        raise stop(f"{file}: this is a folder. Give the path of a Python file in it that defines operators.")
    with reported_import(file):
        return load_file(file)
