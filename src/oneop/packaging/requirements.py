"""What a package needs besides itself, for each runtime that it serves."""

import importlib.metadata
from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """``text`` is what pip reads; ``libraries`` the beginnings of the names of the libraries that it brings."""

    text: str
    libraries: tuple[str, ...] = ()


def requirement_of(target: str) -> Requirement | None:
    """None for a runtime that pip does not install."""
    if target == "onnxruntime":
        return Requirement("onnxruntime>=1.20")
    if target == "openvino":  # a library serves the release that it was built with
        return Requirement(f"openvino=={importlib.metadata.version('openvino')}", ("libopenvino", "libtbb"))
    if target == "pytorch":
        release = importlib.metadata.version("torch").partition("+")[0]
        return Requirement(f"torch=={release}", ("libtorch", "libc10"))
    return None
