"""Hands a built library to its user: a copy in a folder of theirs."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from oneop.errors import BuildError


def deliver(built: Path, output_dir: Path) -> Path:
    """Copies a library into a folder, which is made where it does not exist, and returns the copy's path.

    A reader of the folder sees the whole library or none: it is written under another name and renamed.
    """
    if output_dir.exists() and not output_dir.is_dir():
        raise BuildError(f"{built.name} cannot be written to {output_dir}, which is a file. Name a folder.")
    target = output_dir / built.name
    temporary: str | None = None
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{built.name}.", dir=output_dir)
        os.close(handle)
        shutil.copyfile(built, temporary)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(target)
    except OSError as error:
        raise BuildError(
            f"{built.name} cannot be written to {output_dir}: {error.strerror or error}. "
            "Name a folder that can be written to, or make room."
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    return target.resolve()
