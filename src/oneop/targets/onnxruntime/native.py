"""Asks a library that oneop built for ONNX Runtime which operators it holds, without ONNX Runtime."""

from pathlib import Path

from oneop.targets.contents import fingerprints_in


def fingerprints_of(path: Path) -> dict[str, str]:
    """The fingerprint of each operator in a library, by ``namespace::base``."""
    return fingerprints_in(path, "ONNX Runtime", "onnxruntime")
