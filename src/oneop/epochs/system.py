"""What the operating system says of this process: memory, reads, swapping, threads."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oneop.epochs.errors import WatchError

PROC = Path("/proc")


@dataclass(frozen=True)
class Counters:
    """Since the process began; None: this system does not tell."""

    disk_bytes: int | None
    requested_bytes: int | None
    major_faults: int | None
    system_swap_bytes: int | None
    refaulted_bytes: int | None


@dataclass(frozen=True)
class Levels:
    """As they are now; None: this system does not tell."""

    resident_bytes: int
    available_bytes: int
    threads: int
    process_swap_bytes: int | None


class System:
    """Reads them. One object a watch; a test puts another in its place."""

    def __init__(self) -> None:
        try:
            import psutil
        except ImportError:
            raise WatchError(
                "oneop.epochs needs psutil to read memory and threads. Install it with pip install 'oneop[epochs]'."
            ) from None
        self._psutil = psutil
        self._process = psutil.Process()

    def counters(self) -> Counters:
        disk, requested = self._reads()
        swapped, refaulted = _memory_events()
        return Counters(
            disk_bytes=disk,
            requested_bytes=requested,
            major_faults=_major_faults(),
            system_swap_bytes=self._system_swap() if swapped is None else swapped,
            refaulted_bytes=refaulted,
        )

    def levels(self) -> Levels:
        with self._process.oneshot():
            memory = self._process.memory_info()
            threads = self._process.num_threads()
        return Levels(
            resident_bytes=memory.rss,
            available_bytes=min(self._psutil.virtual_memory().available, _limit_left()),
            threads=threads,
            process_swap_bytes=_process_swap(),
        )

    def _reads(self) -> tuple[int | None, int | None]:
        """From disk, and in all, by this process and its children: those that ended are in its own counters."""
        totals = [counters for name in ("self", *_children()) if (counters := _io_counters(name)) is not None]
        if not totals:
            return None, None
        return sum(disk for disk, _ in totals), sum(requested for _, requested in totals)

    def _system_swap(self) -> int | None:
        try:
            swap = self._psutil.swap_memory()
        except (OSError, RuntimeError):  # containers without /proc/vmstat
            return None
        return int(swap.sin + swap.sout)


def _io_counters(process: str) -> tuple[int, int] | None:
    try:
        lines = (PROC / process / "io").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux, not ours, or ended
        return None
    counters = dict(line.split(": ") for line in lines)
    return int(counters["read_bytes"]), int(counters["rchar"])


def _children() -> Iterator[str]:
    try:
        yield from (PROC / f"self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    except OSError:
        return


def _memory_events() -> tuple[int | None, int | None]:
    """Bytes that this machine swapped, and bytes that it had taken out of memory and had to read again."""
    try:
        lines = (PROC / "vmstat").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux, or a container
        return None, None
    swapped, refaulted = 0, 0
    for name, _, pages in (line.partition(" ") for line in lines):
        if name in ("pswpin", "pswpout"):
            swapped += int(pages)
        elif name.startswith("workingset_refault"):
            refaulted += int(pages)
    page = os.sysconf("SC_PAGE_SIZE")
    return swapped * page, refaulted * page


def _major_faults() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _process_swap() -> int | None:
    try:
        status = (PROC / "self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmSwap:"):
            return int(line.split()[1]) * 1024
    return None


def _limit_left() -> int:
    """What a container's limit leaves; a very large number where there is none."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            most, now = Path(limit).read_text().strip(), int(Path(used).read_text())
        except (OSError, ValueError):
            continue
        if most.isdigit():
            return max(int(most) - now, 0)
    return 1 << 62
