"""Writes a report's file whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path

from oneop.errors import OneopError


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
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(target)
    except OSError as error:
        raise OneopError(
            f"{what} cannot be written to {path}: {error.strerror or error}. Give another path, or make room."
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
