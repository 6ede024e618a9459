"""How much memory is free, as far as the system tells."""

from pathlib import Path


def free_memory() -> int | None:
    """Bytes that this process may still take; None where nobody tells."""
    found = [value for value in (_of_machine(), _of_group()) if value is not None]
    return min(found, default=None)


def shown(count: float) -> str:
    """A number of bytes for people: 1.5 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} EB"


def _of_machine() -> int | None:
    """Linux's own estimate, which counts the page cache as free; elsewhere psutil's where that is installed."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        import psutil
    except ImportError:
        return None
    return int(psutil.virtual_memory().available)


def _of_group() -> int | None:
    """What a container's limit leaves: control groups, version 2."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        # File pages are given back when they are needed.
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(0, int(limit) - used + int(stat.get("file", 0)))
