"""oneop headers: the generated headers of a definition file beside its sources, for editors."""

import typer

from oneop.cli.definitions import DefinitionFile, operators_of
from oneop.cli.failures import reported, stop
from oneop.kernels.devices import specs_for
from oneop.kernels.inputs import INCLUDE
from oneop.kernels.library import write_headers
from oneop.kernels.spec import DEVICES

EXAMPLES = (
    "Example: oneop headers scaled_linear.py (the compiler does not read them: it gets fresh ones at every build)"
)


def command(file: DefinitionFile) -> None:
    """Write the headers that the kernels of FILE include beside FILE, so that an editor finds them."""
    specs = specs_for(operators_of(file), tuple(DEVICES))
    if not specs:
        raise stop(f"{file} defines no operator with kernels, so there is no header to write.")
    with reported():
        for path in write_headers(specs, file.parent):
            typer.echo(f"wrote {path}")
        typer.echo(f"they include files of {INCLUDE}: add that folder to your editor's include path")
