"""Writes a model so that a file is either the old one or the whole new one, and never one that onnx refuses."""

import os
import tempfile
from pathlib import Path
from typing import Any

import onnx
from torch.onnx import ONNXProgram

from oneop.errors import ExportError


def require_writable(path: str | os.PathLike[str]) -> Path:
    """The path of a file that can be written, links followed. Raises ExportError before any work is done."""
    target = Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
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

    Raises ExportError where the file would be none that a runtime can load.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            program.save(Path(folder) / target.name, **options)
            if options.get("include_initializers", True):
                _require_sound(Path(folder) / target.name)
            for file in sorted(Path(folder).iterdir(), key=lambda file: file.name == target.name):
                os.replace(file, target.parent / file.name)
    except OSError as error:
        raise ExportError(
            f"oneop.export: {target} could not be written: {error.strerror or error}. What was there is "
            "unchanged; free the disk, or give another path."
        ) from error


def _require_sound(file: Path) -> None:
    """onnx's checks of the written file: order of the nodes, names, attributes. Without its weights none is sound."""
    try:
        onnx.checker.check_model(os.fspath(file))
    except onnx.checker.ValidationError as error:
        said = " ".join(str(error).split("\n\n==> Context:")[0].split())
        raise ExportError(
            f"oneop.export: the file would be damaged, and nothing was written. onnx says: {said}\nThis is a fault of "
            "oneop, or of torch's exporter. Try optimize=False, or another fallback=; and please report it to the "
            "project of oneop, with the model's code and the versions of torch, onnx and onnxscript."
        ) from error
