"""oneop new: a definition, a kernel and a test to start from, which pass as they are."""

import builtins
import importlib.util
import keyword
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import jinja2
import typer

from oneop.cli.failures import require_folder, stop
from oneop.definition.words import C_WORDS, RESERVED_NAMES, TAKEN_NAMESPACES

EXAMPLES = "Examples: oneop new scaled_add, oneop new scaled_add --language c --directory operators, oneop new s --cuda"
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


class Language(StrEnum):
    CPP = "c++"
    C = "c"
    PYTHON = "python"


_USED = frozenset(["x", "bias", "shape", "dtype", "device", "with_bias", "exported", "ctx"])
"""What the templates call other things, where the operator's name has to mean the operator."""

KERNELS = {Language.CPP: "kernel.cpp.j2", Language.C: "kernel.c.j2"}


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The operator's name, such as scaled_add.")],
    language: Annotated[
        Language, typer.Option("--language", "-l", help="What its kernel is written in.")
    ] = Language.CPP,
    namespace: Annotated[str, typer.Option(help="The operator's namespace, which is its domain in ONNX.")] = "mine",
    cuda: Annotated[bool, typer.Option("--cuda", help="Write a kernel for NVIDIA's GPUs too.")] = False,
    directory: Annotated[str, typer.Option("--directory", "-d", help="The folder to write to.")] = ".",
) -> None:
    """Write NAME.py, its kernel and test_NAME.py: an operator that works, to change into yours."""
    require_folder("--directory", directory)
    _check_name("NAME", name)
    _check_is_free(name, directory)
    _check_name("--namespace", namespace)
    if namespace in TAKEN_NAMESPACES:
        raise stop(f"--namespace {namespace} belongs to {TAKEN_NAMESPACES[namespace]}. Choose another one.")
    folder = Path(directory)
    files = {folder / path: text for path, text in _render(name, namespace, language, cuda).items()}
    taken = [str(path) for path in files if path.exists()]
    if taken:
        exist = "exists" if len(taken) == 1 else "exist"
        raise stop(
            f"nothing was written, since {', '.join(taken)} {exist} already. Choose another name or --directory."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            typer.echo(f"wrote {path}")
    except OSError as error:
        raise stop(f"{error.filename} cannot be written: {error.strerror}. Choose another --directory.") from None
    typer.echo(f"try it: python -m pytest {folder / f'test_{name}.py'}")


def _render(name: str, namespace: str, language: Language, cuda: bool) -> dict[str, str]:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("oneop.cli"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    kernels = {}
    if language in KERNELS:
        kernels[f"{name}.{'c' if language is Language.C else 'cpp'}"] = KERNELS[language]
    if cuda:
        kernels[f"{name}.cu"] = "kernel.cu.j2"
    values = {"name": name, "namespace": namespace, "kernels": list(kernels), "cuda": cuda}
    templates = {f"{name}.py": "definition.py.j2", f"test_{name}.py": "test.py.j2", **kernels}
    return {path: environment.get_template(template).render(values) for path, template in templates.items()}


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise stop(f"{what} is `{name}`, which is no name for an operator. Use lower-case words, such as scaled_add.")
    if name in C_WORDS or name in RESERVED_NAMES or keyword.issoftkeyword(name):
        raise stop(f"{what} is `{name}`, which is a word of C, C++ or Python. Choose another one, such as my_{name}.")


def _check_is_free(name: str, directory: str) -> None:
    """The files import NAME.py by its name, and call the operator by it."""
    if name in _USED or hasattr(builtins, name):
        used = "the files use for something else" if name in _USED else "Python has a function of"
        raise stop(f"NAME is `{name}`, a name that {used}. Choose another one, such as my_{name}.")
    if _is_module(name, Path(directory)):
        raise stop(
            f"NAME is `{name}`, and a module of that name can be imported here: {name}.py would be confused with it. "
            f"Choose another one, such as my_{name}."
        )


def _is_module(name: str, directory: Path) -> bool:
    """Whether another module than one in the folder has the name."""
    if name in sys.stdlib_module_names:
        return True
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return False
    return Path(spec.origin).resolve().parent != directory.resolve()
