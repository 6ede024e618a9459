"""CUDA kernels on the CPU: `.cu` files with their launches rewritten, for the C++ compiler and emulated/cuda_runtime.h."""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oneop.kernels.building import Library
from oneop.kernels.cache import cache_root
from oneop.kernels.library import kernel_library
from oneop.kernels.spec import KernelSpec

_HERE = Path(__file__).parent
_LAUNCH = re.compile(r"(?P<kernel>[\w:]+(?:<[\w\s:,]*>)?)<<<(?P<configuration>.*?)>>>\((?P<arguments>.*?)\);", re.S)


def emulated_library(specs: Sequence[KernelSpec]) -> Library:
    """The library of these CUDA kernels, in which the table says CUDA and the code runs on the CPU."""
    library = kernel_library([_emulated(spec) for spec in specs])
    # The kernels are written for nvcc, whose warnings are others.
    flags = ("-D__CUDACC__", f"-I{_HERE / 'emulated'}", "-O1", *(flag for flag in library.flags if flag != "-Wconversion"))
    return replace(library, flags=flags, inputs=(*library.inputs, _HERE / "emulated" / "cuda_runtime.h"))


def _emulated(spec: KernelSpec) -> KernelSpec:
    return replace(spec, sources=tuple(map(_rewritten, spec.sources)))


def _rewritten(source: Path) -> Path:
    """The same source with `f<<<grid, block, 0, stream>>>(a);` as a call, in a file whose name tells its content."""
    text, count = _LAUNCH.subn(_call, source.read_text())
    assert count == source.read_text().count("<<<"), f"{source} has a launch that is not understood"
    folder = cache_root() / "emulated" / hashlib.sha256(text.encode()).hexdigest()[:24]
    path = folder / f"{source.stem}.cpp"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{source.stem}.{os.getpid()}"
        part.write_text(text)
        part.rename(path)
    return path


def _call(found: re.Match[str]) -> str:
    return f"oneop_emulated::launch({found['configuration']}, [&] {{ {found['kernel']}({found['arguments']}); }});"
