"""oneop build: the library of a definition file, for another runtime."""

from pathlib import Path
from typing import Annotated

import typer

import oneop
from oneop.cli.definitions import DefinitionFile, operators_of
from oneop.cli.failures import reported

EXAMPLES = "Example: oneop build scaled_linear.py --target onnxruntime --output build"


def command(
    file: DefinitionFile,
    target: Annotated[str, typer.Option("--target", "-t", help="The runtime that will load it.")] = "onnxruntime",
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to put it in; made if missing.")] = Path(
        "."
    ),
) -> None:
    """Build the kernels of FILE as a library that another runtime loads, and print its path."""
    operators = operators_of(file)
    with reported():
        library = oneop.build(operators, target, output)
    typer.echo(library)
