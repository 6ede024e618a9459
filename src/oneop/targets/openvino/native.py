"""Asks an extension that oneop built what it holds, before OpenVINO loads it."""

import re
from pathlib import Path

from oneop.errors import BuildError
from oneop.targets.contents import fingerprints_in
from oneop.targets.openvino.installation import installation
from oneop.targets.openvino.library import VERSION_MARK

_VERSION = re.compile(re.escape(VERSION_MARK.encode()) + rb"([^\0]+)\0")


def fingerprints_of(path: Path) -> dict[str, str]:
    """The fingerprint of each operator in a library, by ``namespace::base``.

    Raises BuildError where it is for another runtime, or another release of OpenVINO: each looks for its own.
    """
    import openvino  # noqa: F401  (the library needs it in the process)

    found = _VERSION.search(path.read_bytes()) if path.is_file() else None
    here = installation().version
    if found is not None and found[1].decode() != here:
        raise BuildError(
            f"{path} was built for OpenVINO {found[1].decode()}; this is {here}. Build it again with this one."
        )
    return fingerprints_in(path, "OpenVINO", "openvino")
