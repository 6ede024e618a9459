"""Runs pytest in a process whose torch takes fake_cuda.cpp for a GPU, with CUDA kernels emulated on it.

python with_fake_gpu.py LIBRARY PYTEST-ARGUMENTS...   (LIBRARY: fake_cuda.py builds it)
"""

import ctypes
import importlib.util
import sys
from pathlib import Path


def load(library: str) -> None:
    """Before torch is imported: what it asks of CUDA once, it keeps."""
    specification = importlib.util.find_spec("torch")
    assert specification is not None
    assert specification.origin is not None
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(Path(specification.origin).parent / "lib" / name))
    ctypes.CDLL(library)


if __name__ == "__main__":
    load(sys.argv[1])
    here = Path(__file__).parent
    sys.path[:0] = [str(here), str(here.parent / "gpu"), str(here.parent)]
    import fake_cuda
    import pytest

    fake_cuda.pretend(Path(sys.argv[1]))
    raise SystemExit(pytest.main(sys.argv[2:]))
