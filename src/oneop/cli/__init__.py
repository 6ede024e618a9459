"""The command line of oneop: one module a command."""

from typing import Annotated

import typer

import oneop
from oneop.cli import bench, build, check, doctor, epochs, headers, inspect, new, package

app = typer.Typer(
    name="oneop",
    help="Define a PyTorch operator once; train with it, export it, and run it natively in other runtimes.",
    epilog="Start with: oneop doctor && oneop new scaled_add",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("build", epilog=build.EXAMPLES)(build.command)
app.command("bench", epilog=bench.EXAMPLES)(bench.command)
app.command("check", epilog=check.EXAMPLES)(check.command)
app.command("epochs", epilog=epochs.EXAMPLES, context_settings=epochs.PASSES_ON)(epochs.command)
app.command("headers", epilog=headers.EXAMPLES)(headers.command)
app.command("new", epilog=new.EXAMPLES)(new.command)
app.command("package", epilog=package.EXAMPLES)(package.command)
app.command("inspect", epilog=inspect.EXAMPLES)(inspect.command)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.command)


def main() -> None:
    """What the program `oneop` runs."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"oneop {oneop.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
