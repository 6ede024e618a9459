"""Writes a report's file whole or not at all."""

import os
from pathlib import Path

from oneop.errors import OneopError
from oneop.writing import replacing


def require_writable(path: Path, what: str) -> None:
    """Raises OneopError where the file cannot be written: called before the work whose result goes there."""
    if path.is_dir():
        raise OneopError(f"{path} is a folder, and {what} is a file. Give the path of a file in it.")
    if not path.parent.is_dir():
        raise OneopError(f"{what} cannot be written to {path}: there is no folder {path.parent}. Create it.")
    if not os.access(path.parent, os.W_OK):
        raise OneopError(f"{what} cannot be written to {path}: you may not write to {path.parent}. Give another path.")


def write(path: Path, content: bytes, what: str) -> None:
    """Writes under another name, then renames. Raises OneopError, and leaves what stands at ``path`` as it was."""
    path = Path(path)
    require_writable(path, what)
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    try:
        with replacing(target) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise OneopError(
            f"{what} cannot be written to {path}: {error.strerror or error}. Give another path, or make room."
        ) from error
