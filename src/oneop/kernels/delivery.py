"""Hands what was built to its user: files in a folder of theirs."""

import shutil
from collections.abc import Callable
from pathlib import Path

from oneop.errors import BuildError
from oneop.writing import replacing


def deliver(built: Path, output_dir: Path) -> Path:
    """Copies a library into a folder, which is made where it does not exist, and returns the copy's path.

    A reader of the folder sees the whole library or none.
    """
    return _delivered(output_dir / built.name, 0o755, lambda temporary: shutil.copyfile(built, temporary))


def write_file(path: Path, content: bytes) -> Path:
    """Writes a file into a folder, which is made where it does not exist: the same promise."""
    return _delivered(path, 0o644, lambda temporary: temporary.write_bytes(content))


def _delivered(path: Path, mode: int, write: Callable[[Path], object]) -> Path:
    folder = path.parent
    if folder.exists() and not folder.is_dir():
        raise BuildError(f"{path.name} cannot be written to {folder}, which is a file. Name a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path, mode) as temporary:
            write(temporary)
    except OSError as error:
        raise BuildError(
            f"{path.name} cannot be written to {folder}: {error.strerror or error}. "
            "Name a folder that can be written to, or make room."
        ) from error
    return path.resolve()
