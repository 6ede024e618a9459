"""Exported programs know which module defines their operators; loading one says what to import where they miss."""

import json
import zipfile
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from oneop.errors import ExportError

if TYPE_CHECKING:
    from oneop.operator import Operator

_KEY = "oneop"


def call(operator: "Operator", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls an operator where torch.export traces: its node keeps the module that defines it."""
    from torch.fx.traceback import annotate, preserve_node_meta

    if torch.compiler.is_dynamo_compiling():  # which keeps annotations by itself
        with annotate({_KEY: operator.__module__}):
            return operator.torch_op(*args, **kwargs)
    with preserve_node_meta(), annotate({_KEY: operator.__module__}):
        return operator.torch_op(*args, **kwargs)


def load_exported(path: str | PathLike[str]) -> torch.export.ExportedProgram:
    """Loads what ``torch.export.save`` wrote. Raises ExportError that names missing operators and what to import.

    >>> import oneop
    >>> oneop.load_exported("no_such_file.pt2")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'no_such_file.pt2'
    """
    missing = {name: module for name, module in _operators(Path(path)) if not _is_known(name)}
    if missing:
        names = ", ".join(missing)
        imports = "; ".join(dict.fromkeys(_remedy(module) for module in missing.values()))
        raise ExportError(f"{path}: the program calls {names}, which this process does not know. First {imports}.")
    return torch.export.load(path)


def _operators(path: Path) -> Iterator[tuple[str, str | None]]:
    """Each operator that the file calls, with the module that its node names."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            if "models/" in entry and entry.endswith(".json"):
                yield from _calls(json.loads(archive.read(entry)))


def _calls(value: Any) -> Iterator[tuple[str, str | None]]:
    if isinstance(value, dict):
        target = value.get("target")
        if isinstance(target, str) and target.startswith("torch.ops."):
            space, base = target.split(".")[2:4]
            custom = json.loads(value.get("metadata", {}).get("custom", "{}"))
            yield f"{space}::{base}", custom.get(_KEY)
        value = [*value.values()]
    if isinstance(value, list):
        for item in value:
            yield from _calls(item)


def _is_known(name: str) -> bool:
    space, base = name.split("::")
    return hasattr(getattr(torch.ops, space), base)


def _remedy(module: str | None) -> str:
    if module is None:
        return "import the module that defines them"
    if module == "__main__":
        return "move their definition from the script that exported them to a module, and import that"
    if module.startswith("oneop_file_"):
        return f"call oneop.registry.load_file with the path of {module.removeprefix('oneop_file_')}.py"
    return f"`import {module}`"
