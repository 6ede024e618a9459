"""A lock between builders: held by an open file, so the kernel drops it when its process dies, however it dies."""

import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.02
_opened: set[int] = set()
_forks = threading.Lock()  # no fork between opening a file and noting it down


class StillHeldError(Exception):
    """The bound on waiting has passed; `holder` says who has the lock."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


@contextmanager
def exclusive(path: Path, bound: float, on_wait: Callable[[str], None], patience: float = 1.0) -> Iterator[None]:
    """Hold the lock at `path`; call `on_wait(holder)` after `patience` seconds.

    Raises StillHeldError after `bound` seconds.
    """
    start = time.monotonic()
    told = False
    while (descriptor := try_lock(path)) is None:
        waited = time.monotonic() - start
        if waited >= bound:
            raise StillHeldError(_holder(path))
        if waited >= patience and not told:
            told = True
            on_wait(_holder(path))
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        unlock(path, descriptor)


def try_lock(path: Path) -> int | None:
    """Take the lock without waiting: a descriptor for `unlock`, or None where somebody holds it."""
    with _forks:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        _opened.add(descriptor)
    try:
        held = _lock(descriptor) and _is_current(path, descriptor)
    except BaseException:
        _close(descriptor)
        raise
    if not held:
        _close(descriptor)
        return None
    try:
        _sign(descriptor)
    except BaseException:
        unlock(path, descriptor)
        raise
    return descriptor


def unlock(path: Path, descriptor: int) -> None:
    """Let go, and remove the file first, so that locks leave nothing behind."""
    if descriptor in _opened:  # not so in a forked child: there the lock is its parent's
        path.unlink(missing_ok=True)
        _close(descriptor)


def _close(descriptor: int) -> None:
    with _forks:
        _opened.discard(descriptor)
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}".encode(), 0)


def _is_current(path: Path, descriptor: int) -> bool:
    # The last holder may have removed the file between our open and our lock; then a third may have made a new one.
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _holder(path: Path) -> str:
    try:
        words = path.read_text(errors="replace").split()
    except OSError:
        words = []
    if not words:
        return "another process"
    if len(words) > 1 and words[1] != socket.gethostname():
        return f"process {words[0]} on {words[1]}"
    if words[0] == str(os.getpid()):
        return "another thread of this process"
    return f"process {words[0]}"


def _let_go_in_child() -> None:
    # A forked child shares its parent's open files: without this it would keep the lock of a parent that died.
    for descriptor in _opened:
        os.close(descriptor)
    _opened.clear()
    _forks.release()


os.register_at_fork(before=_forks.acquire, after_in_parent=_forks.release, after_in_child=_let_go_in_child)
