"""Takes away what OpenVINO's CPU plugin does to the thread that loads it: it sets a stack for signals of its own.

The plugin (seen in 2026.4) frees that stack when it is unloaded, and puts back the one before only where its own is
still set. Two ``openvino.Core`` that end in the order in which they began, or one that ends on another thread, leave a
stack that is gone: the next signal with a handler, such as the SIGCHLD of a DataLoader's workers, is written over
memory that belongs to somebody else by then. So the plugin is loaded at once, and the stack before is put back.
"""

import contextlib
import ctypes
import mmap
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

SIZE = 1 << 18
"""Bytes of a stack of our own: the largest frames of a signal, those with the registers of AMX, have some 11 KB."""

_kept: list[mmap.mmap] = []  # for the rest of the process: a thread may be in a handler at any time


class _Stack(ctypes.Structure):
    """``stack_t`` of Linux."""

    _fields_ = (("pointer", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def load_cpu_plugin(core: "openvino.Core") -> None:
    """Has the core load its CPU plugin; this thread's stack for signals is the same afterwards."""
    if sys.platform != "linux":
        return
    before = current()
    with contextlib.suppress(RuntimeError):  # an OpenVINO without that plugin says so to whoever compiles a model
        core.get_property("CPU", "FULL_DEVICE_NAME")
    if (current().pointer, current().size) != (before.pointer, before.size) and not _set(before):
        # Once a process may use AMX, Linux takes no smaller stack than these registers need.
        _kept.append(mmap.mmap(-1, SIZE))
        address = ctypes.addressof(ctypes.c_char.from_buffer(_kept[-1]))
        _set(_Stack(address, 0, SIZE))


def current() -> _Stack:
    """This thread's stack for signals."""
    found = _Stack()
    _libc().sigaltstack(None, ctypes.byref(found))
    return found


def _set(stack: _Stack) -> bool:
    return int(_libc().sigaltstack(ctypes.byref(stack), None)) == 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
