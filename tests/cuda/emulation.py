"""CUDA kernels on the CPU: `.cu` files, launches rewritten, for the C++ compiler and emulated/cuda_runtime.h."""

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

from oneop.kernels.cache import cache_root
from oneop.kernels.spec import KernelSpec

_HERE = Path(__file__).parent
_LAUNCH = re.compile(r"(?P<kernel>[\w:]+(?:<[\w\s:,]*>)?)<<<(?P<configuration>.*?)>>>\((?P<arguments>.*?)\);", re.S)
# The kernels are written for nvcc, whose warnings are others.
_FLAGS = ("-D__CUDACC__", f"-I{_HERE / 'emulated'}", "-O1", "-Wno-conversion", "-Wno-unknown-pragmas")


def emulated(spec: KernelSpec) -> KernelSpec:
    """The same kernels: in a library's table they are CUDA's, and the code runs on the CPU."""
    options = replace(spec.options, flags=(*spec.options.flags, *_FLAGS))
    return replace(spec, sources=tuple(map(_rewritten, spec.sources)), options=options)


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
    """What the arguments are is found out once, before the launch, as CUDA does."""
    kernel = f"[&](auto... given) {{ return [=] {{ {found['kernel']}(given...); }}; }}"
    return f"oneop_emulated::launch({found['configuration']}, {kernel}({found['arguments']}));"
