"""A torch with a pretended GPU (fake_cuda.cpp), for a process that is given over to it: see with_fake_gpu.py."""

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from emulation import emulated

from oneop import registry
from oneop.kernels.building import Library, Unit, build
from oneop.kernels.library import kernel_library
from oneop.targets.pytorch import native, runtime

if TYPE_CHECKING:
    from oneop.operator import Operator

_SOURCE = Path(__file__).with_name("fake_cuda.cpp")
_loaded: list[ctypes.CDLL] = []


def library() -> Library:
    """The pretended GPU, built as the runtime is."""
    core = runtime.core_library()
    unit = Unit("fake_cuda", "c++", path=_SOURCE, flags=("-std=c++20", "-O1"))
    return replace(core, title="the pretended GPU", stem="oneop_fake_cuda", units=(unit,), note="")


def pretend(path: Path) -> None:
    """Makes tensors of cuda:0 and cuda:1 possible in this process, and operators' kernels on them."""
    if torch.backends.cuda.is_built():
        raise RuntimeError("this torch has CUDA: a pretended GPU cannot stand beside it")
    loaded = ctypes.CDLL(str(path))
    loaded.fake_cuda_set_stream.argtypes = [ctypes.c_int, ctypes.c_int64]
    for name in ("fake_cuda_blocks", "fake_cuda_requests"):
        getattr(loaded, name).restype = ctypes.c_int64
    _loaded.append(loaded)
    torch.cuda._lazy_init = lambda: None  # type: ignore[assignment]  # torch asks before it makes a tensor there
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    native.cuda_library = _emulated


def is_pretended() -> bool:
    return bool(_loaded)


def blocks() -> int:
    """How many blocks of the pretended GPU's memory live."""
    return int(_loaded[0].fake_cuda_blocks())


def requests() -> int:
    """How often memory was asked for."""
    return int(_loaded[0].fake_cuda_requests())


def current_device() -> int:
    return int(_loaded[0].fake_cuda_device())


@contextlib.contextmanager
def stream(number: int, device: int = 0) -> Iterator[int]:
    """Another current stream; its handle, as a kernel gets it, comes out."""
    _loaded[0].fake_cuda_set_stream(device, number)
    try:
        yield (device + 1) * 4096 + number
    finally:
        _loaded[0].fake_cuda_set_stream(device, 0)


def _emulated(operator: "Operator") -> Any:
    found = registry.compiled_together(item for item in registry.defined_with(operator) if "cuda" in item.devices)
    return build(kernel_library([emulated(item.kernel_spec("cuda")) for item in found if "cuda" in item.devices]))
