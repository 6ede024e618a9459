"""Writes a wheel: the same bytes for the same content, and the whole of it or nothing.

The format (PEP 427) is a zip file with a list of its files in it. The package `wheel` says of itself that it is no
library for others, and hatchling builds from a project's folder, so the few lines stand here.
"""

import base64
import csv
import hashlib
import io
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from oneop.kernels.delivery import write_file
from oneop.packaging.names import Names

_EARLIEST = 315532800  # 1980-01-01, where the time of zip files begins
_EXECUTABLE = (".so", ".dylib")


def write_wheel(
    names: Names, tag: str, files: Mapping[str, bytes], metadata: Mapping[str, bytes], output_dir: Path
) -> Path:
    """Writes ``files`` (of the module) and ``metadata`` (of the folder .dist-info) and returns the wheel's path.

    Raises BuildError where the folder cannot be written to.
    """
    stem = f"{names.distribution.replace('-', '_')}-{names.version}"
    info = f"{stem}.dist-info"
    every = {f"{names.module}/{name}": content for name, content in files.items()}
    every.update({f"{info}/{name}": content for name, content in metadata.items()})
    every[f"{info}/WHEEL"] = _wheel_text(tag)
    every[f"{info}/RECORD"] = _record(every, f"{info}/RECORD")
    return write_file(output_dir / f"{stem}-py3-none-{tag}.whl", _zipped(every))


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """The metadata stands at the end, as the format wishes, and the list of all files last."""
    buffer = io.BytesIO()
    date = time.gmtime(_time())[:6]
    order = sorted(files, key=lambda name: (".dist-info/" in name, name.endswith("/RECORD"), name))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in order:
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, whose permissions follow
            entry.external_attr = (0o100755 if name.endswith(_EXECUTABLE) else 0o100644) << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def _time() -> int:
    """SOURCE_DATE_EPOCH, as reproducible builds have it."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    return max(int(given), _EARLIEST) if given.isdecimal() else _EARLIEST


def _wheel_text(tag: str) -> bytes:
    return f"Wheel-Version: 1.0\nGenerator: oneop\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n".encode()


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        writer.writerow([name, f"sha256={digest}", len(content)])
    writer.writerow([own, "", ""])
    return text.getvalue().encode()
