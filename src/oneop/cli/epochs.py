"""oneop epochs: runs a training script and says where the time of its epochs goes."""

from pathlib import Path
from typing import Annotated

import typer

from oneop.cli.failures import reported, stop

EXAMPLES = "Example: oneop epochs --html epochs.html train.py --batch-size 64"

PASSES_ON = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}
"""What stands behind SCRIPT is the script's, options too."""


def command(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script that trains with DataLoaders.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="What it is given.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the record as JSON.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write one self-contained page.")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write the plot.")] = None,
    overhead: Annotated[float, typer.Option(help="The share of the time that samples may take.")] = 0.004,
) -> None:
    """Run a training SCRIPT as it is, and show for each epoch where its time goes and why later ones are slow.

    Options of this command come before SCRIPT; what comes after it is passed to it.
    """
    if not script.is_file():
        raise stop(f"{script}: there is no such file. Give the path of a Python script that trains.")
    from oneop.epochs import checks
    from oneop.epochs.script import watch_script

    with reported():
        checks.check_share(overhead)
        checks.check_outputs(((json, "the record"), (html, "the page"), (png, "the plot")))
    watch = watch_script(script, arguments or [], overhead, (json, html, png))
    if not watch.epochs:
        raise stop(
            f"{script}: no epoch was recorded: the script iterated no DataLoader. For other loops use"
            " oneop.epochs.watch in it."
        )
