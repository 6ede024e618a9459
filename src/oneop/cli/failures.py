"""What a user's mistake looks like on the command line: one message, no traceback of ours, exit status 1."""

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path

import typer

from oneop.errors import OneopError


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Turns a OneopError into its message. Anything else is a fault of oneop and keeps its traceback."""
    try:
        yield
    except OneopError as error:
        raise stop(str(error)) from None


@contextlib.contextmanager
def reported_import(file: Path) -> Iterator[None]:
    """Turns whatever a definition file raises while it is imported into a message with that file's line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        where = _place(error, file)
        if isinstance(error, OneopError):
            raise stop(f"{error}" + (f"\n  {where}" if where else "")) from None
        kind = type(error).__name__
        said = f"{kind}: {error.msg if isinstance(error, SyntaxError) else error}".rstrip(": ")
        raise stop(f"{file} does not import: {said}" + (f"\n  {where}" if where else "")) from None


def require_folder(option: str, given: str) -> None:
    """An empty path would be the folder that the user is in: more likely a shell variable that is not set."""
    if not given.strip():
        raise stop(f"{option} is empty, and has to name a folder. Leave it out for the folder you are in.")


def stop(message: str) -> typer.Exit:
    """Prints the message; raise what it returns."""
    typer.echo(f"oneop: {message}", err=True)
    return typer.Exit(1)


def _place(error: BaseException, file: Path) -> str | None:
    """The line of the user's file that raised the error, or that called what raised it."""
    if isinstance(error, SyntaxError) and error.filename is not None and error.lineno is not None:
        return _line(error.filename, error.lineno, error.text)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename) == file.resolve()]
    return _line(own[-1].filename, own[-1].lineno, own[-1].line) if own else None


def _line(file: str, number: int | None, text: str | None) -> str:
    return f"{file}, line {number}" + (f": {text.strip()}" if text else "")
