"""oneop build: the library of a definition file, for another runtime."""

from enum import StrEnum
from typing import Annotated

import typer

import oneop
from oneop.cli.definitions import DefinitionFile, operators_of
from oneop.cli.failures import reported, require_folder

EXAMPLES = (
    "Example: oneop build scaled_linear.py --target onnxruntime --output build. CUDA kernels are in the library where "
    "there is an nvcc; --device cuda insists on them, --device cpu leaves them out."
)


class Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


def command(
    file: DefinitionFile,
    target: Annotated[str, typer.Option("--target", "-t", help="The runtime that will load it.")] = "onnxruntime",
    output: Annotated[str, typer.Option("--output", "-o", help="The folder to put it in; made if missing.")] = ".",
    device: Annotated[Device | None, typer.Option("--device", help="Whose kernels it must hold.")] = None,
) -> None:
    """Build the kernels of FILE as a library that another runtime loads, and print its path."""
    require_folder("--output", output)
    operators = operators_of(file)
    with reported():
        library = oneop.build(operators, target, output, device=None if device is None else device.value)
    typer.echo(library)
