"""Writes a model so that a file is either the old one or the whole new one."""

import os
import tempfile
from pathlib import Path
from typing import Any

from torch.onnx import ONNXProgram

from oneop.errors import ExportError


def require_writable(path: str | os.PathLike[str]) -> Path:
    """The path of a file that can be written. Raises ExportError before any work is done."""
    target = Path(path)
    if target.is_dir():
        raise ExportError(f"oneop.export: {target} is a folder. Give the path of a file in it.")
    if not target.parent.is_dir():
        raise ExportError(f"oneop.export: the folder {target.parent} does not exist. Create it, or give another path.")
    if not os.access(target.parent, os.W_OK):
        raise ExportError(f"oneop.export: the folder {target.parent} cannot be written to. Give another path.")
    return target


def save(program: ONNXProgram, target: Path, **options: Any) -> None:
    """Writes beside the target first, then moves: the weights' own file, if there is one, before the model that names
    it.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            program.save(Path(folder) / target.name, **options)
            for file in sorted(Path(folder).iterdir(), key=lambda file: file.name == target.name):
                os.replace(file, target.parent / file.name)
    except OSError as error:
        raise ExportError(
            f"oneop.export: {target} could not be written: {error.strerror or error}. What was there is "
            "unchanged; free the disk, or give another path."
        ) from error
