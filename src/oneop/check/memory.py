"""Whether memory and live objects stay as they are over many calls."""

import ctypes
import ctypes.util
import gc
import os
import resource
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from oneop.check.session import Clock

_WINDOWS = 4
_LEAST_BYTES = 24.0
"""A call that keeps less than this on average keeps nothing: the smallest block of glibc's malloc has 32 bytes."""


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def growth(step: Callable[[], None], calls: int, clock: Clock) -> str | None:
    """What grows with each call, in words; None where nothing does. It grows if it does so in every window."""
    window = max(calls // _WINDOWS, 40)
    for _ in range(max(window // 2, 20)):
        step()
    gc.freeze()  # what is there already is not looked through: that alone would take longer than the calls
    try:
        # What a runtime keeps in its first calls stops at some time; what a call keeps goes on.
        return _growth(step, window, clock) and _growth(step, window, clock)
    finally:
        gc.unfreeze()


def _growth(step: Callable[[], None], window: int, clock: Clock) -> str | None:
    heaps, objects = [_heap()], [_objects()]
    for done in range(_WINDOWS):
        if clock.is_over and done >= 2:
            break
        for _ in range(window):
            step()
        heaps.append(_heap())
        objects.append(_objects())
    live = [(after - before) / window for before, after in pairwise(objects)]
    if min(live) >= 0.5 and min(live) > max(live) / 3:
        return f"each call leaves {min(live):.2g} objects of Python alive"
    bytes_kept = [(after - before) / window for before, after in pairwise(heaps)]
    # The resident set moves in pages; only what grows in every window, and by about as much, is kept by the calls.
    if min(bytes_kept) >= _LEAST_BYTES and min(bytes_kept) > max(bytes_kept) / 3:
        return f"each call keeps {min(bytes_kept):.0f} bytes of memory"
    return None


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def _heap() -> int:
    """Bytes that malloc has given out: to the byte with glibc; elsewhere the resident set, in pages."""
    exact = _glibc()
    if exact is not None:
        found = exact()
        return int(found.uordblks + found.hblkhd)
    return _resident()


def _glibc() -> Callable[[], _Mallinfo] | None:
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return None
    function.restype = _Mallinfo
    return function  # type: ignore[no-any-return]


def _resident() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    # macOS says bytes. The largest so far, which is what a leak moves.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
