"""oneop new: a definition, a kernel and a test to start from, which pass as they are."""

import keyword
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import jinja2
import typer

from oneop.cli.failures import stop
from oneop.definition.words import C_WORDS, RESERVED_NAMES, TAKEN_NAMESPACES

EXAMPLES = "Examples: oneop new scaled_add, oneop new scaled_add --language c --directory operators"
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


class Language(StrEnum):
    CPP = "c++"
    C = "c"
    PYTHON = "python"


KERNELS = {Language.CPP: "kernel.cpp.j2", Language.C: "kernel.c.j2"}


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The operator's name, such as scaled_add.")],
    language: Annotated[
        Language, typer.Option("--language", "-l", help="What its kernel is written in.")
    ] = Language.CPP,
    namespace: Annotated[str, typer.Option(help="The operator's namespace, which is its domain in ONNX.")] = "mine",
    directory: Annotated[Path, typer.Option("--directory", "-d", help="The folder to write to.")] = Path("."),
) -> None:
    """Write NAME.py, its kernel and test_NAME.py: an operator that works, to change into yours."""
    _check_name("NAME", name)
    _check_name("--namespace", namespace)
    if namespace in TAKEN_NAMESPACES:
        raise stop(f"--namespace {namespace} belongs to {TAKEN_NAMESPACES[namespace]}. Choose another one.")
    files = {directory / path: text for path, text in _render(name, namespace, language).items()}
    taken = [str(path) for path in files if path.exists()]
    if taken:
        raise stop(f"nothing was written, since {', '.join(taken)} exists already. Choose another name or --directory.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            typer.echo(f"wrote {path}")
    except OSError as error:
        raise stop(f"{error.filename} cannot be written: {error.strerror}. Choose another --directory.") from None
    typer.echo(f"try it: python -m pytest {directory / f'test_{name}.py'}")


def _render(name: str, namespace: str, language: Language) -> dict[str, str]:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("oneop.cli"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    kernel = f"{name}.{'c' if language is Language.C else 'cpp'}" if language in KERNELS else None
    values = {"name": name, "namespace": namespace, "kernel": kernel}
    templates = {f"{name}.py": "definition.py.j2", f"test_{name}.py": "test.py.j2"}
    if kernel is not None:
        templates[kernel] = KERNELS[language]
    return {path: environment.get_template(template).render(values) for path, template in templates.items()}


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise stop(f"{what} is `{name}`, which is no name for an operator. Use lower-case words, such as scaled_add.")
    if name in C_WORDS or name in RESERVED_NAMES or keyword.issoftkeyword(name):
        raise stop(f"{what} is `{name}`, which is a word of C, C++ or Python. Choose another one.")
