"""The platform tag of a wheel: the oldest Linux that its libraries run on, read from what they need."""

import platform
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from oneop.packaging.elf import Needs, needs_of

_SYSTEM = re.compile(r"(?:lib(?:c|m|dl|pthread|rt|gcc_s|stdc\+\+)|ld-linux-[\w-]+)\.so\.\d+")
"""Libraries that every Linux has which runs wheels of the kind manylinux (PEP 600)."""

# The first glibc of distributions whose libstdc++ and libgcc have these versions: what PEP 600's "any mainstream
# distribution with that glibc" comes to.
_CXX = (
    (17, "GLIBCXX_3.4.19"), (24, "GLIBCXX_3.4.22"), (26, "GLIBCXX_3.4.24"), (28, "GLIBCXX_3.4.25"),
    (31, "GLIBCXX_3.4.28"), (34, "GLIBCXX_3.4.29"), (35, "GLIBCXX_3.4.30"), (38, "GLIBCXX_3.4.32"),
    (39, "GLIBCXX_3.4.33"), (41, "GLIBCXX_3.4.34"),
    (17, "CXXABI_1.3.7"), (24, "CXXABI_1.3.10"), (26, "CXXABI_1.3.11"), (31, "CXXABI_1.3.12"),
    (34, "CXXABI_1.3.13"), (38, "CXXABI_1.3.14"), (39, "CXXABI_1.3.15"),
    (17, "GCC_4.8.0"), (26, "GCC_7.0.0"), (35, "GCC_12.0.0"), (38, "GCC_13.0.0"), (39, "GCC_14.0.0"),
)  # fmt: skip
_OLDEST = 17


def platform_tag(libraries: Sequence[Path], provided: Iterable[str] = (), *, any_processor: bool = True) -> str:
    """``manylinux_2_34_x86_64`` for libraries that need no newer glibc; ``linux_x86_64`` where nothing can be said.

    That is so where a library needs another one than the system's and those that a requirement of the wheel brings
    (``provided``: beginnings of their names), or is for one kind of processor only.
    """
    if sys.platform != "linux":
        return re.sub(r"[-.]", "_", sysconfig.get_platform())
    machine = platform.machine()
    minor = _OLDEST
    for path in libraries:
        needs = needs_of(path)
        own = None if needs is None else _glibc(needs, tuple(provided))
        if own is None or not any_processor:
            return f"linux_{machine}"
        minor = max(minor, own)
    return f"manylinux_2_{minor}_{machine}"


def _glibc(needs: Needs, provided: tuple[str, ...]) -> int | None:
    """The minor version of the glibc 2 that a library needs at least, None where that is not known."""
    for name in needs.libraries:
        if not _SYSTEM.fullmatch(name) and not (provided and name.startswith(provided)):
            return None
    found = [_glibc_of(version) for version in needs.versions]
    known = [minor for minor in found if minor is not None]
    return max([_OLDEST, *known]) if len(known) == len(found) else None


def _glibc_of(version: str) -> int | None:
    library, _, number = version.partition("_")
    parts = _parts(number)
    if library == "GLIBC":
        return parts[1] if parts and parts[0] == 2 and len(parts) > 1 else None
    rows = [(minor, _parts(row.partition("_")[2])) for minor, row in _CXX if row.startswith(f"{library}_")]
    enough = [minor for minor, limit in rows if parts <= limit]
    return min(enough) if parts and enough else None


def _parts(number: str) -> tuple[int, ...]:
    return tuple(int(part) for part in number.split(".")) if re.fullmatch(r"\d+(?:\.\d+)*", number) else ()
