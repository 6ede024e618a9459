"""PyTorch: operators in this process, and libraries that serve them in programs without Python."""

from collections.abc import Sequence
from pathlib import Path

from oneop.kernels.spec import Device, KernelSpec

DEVICES: tuple[Device, ...] = ("cpu", "cuda")


def build_library(specs: Sequence[KernelSpec], output_dir: Path) -> Path:
    """The library that a C++ program loads, written to ``output_dir``. See ``serving.build_library``."""
    from oneop.targets.pytorch import serving  # every program imports this folder, few build here

    return serving.build_library(specs, output_dir)
