"""What is compiled and linked into one shared library, and the key under which the result is kept."""

import hashlib
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache as remember
from pathlib import Path

from oneop.errors import BuildError
from oneop.kernels.compilers import CUDA_ENVIRONMENT, ENVIRONMENT, Compiler, Language, cpu_identity

_RECIPE = 1  # raise it when the commands that build change in a way the key does not see
INCLUDE = Path(__file__).with_name("include")


@dataclass(frozen=True)
class Unit:
    """One translation unit: a generated text, or a user's file that is compiled as it is."""

    name: str  # of the object, unique in its library
    language: Language
    text: str | None = None
    path: Path | None = None
    flags: tuple[str, ...] = ()  # e.g. -std=c++20; the default is -std=c11 or -std=c++17
    # Of CUDA: flags that are nvcc's own (`flags` are the C++ compiler's), and the GPUs; None stands for the default.
    cuda_flags: tuple[str, ...] = ()
    architectures: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.path is None):
            raise ValueError(f"unit {self.name} needs either a text or a path")


@dataclass(frozen=True)
class Library:
    """What to compile and link. Paths are absolute, in flags too: the compiler runs in a folder of its own."""

    title: str  # for messages: "the kernels of scaled_linear.py"
    stem: str  # of the file: "scaled_linear" gives libscaled_linear.so
    units: tuple[Unit, ...]
    headers: Mapping[str, str] = field(default_factory=dict)  # generated; #include "..." finds them in every unit
    include_dirs: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()  # for every unit, after our -O3 -fPIC and before the unit's
    link_flags: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()  # further files that belong to the key: those that generated texts include
    # Include folders of installed packages: their warnings are not shown and their files are not watched, so the
    # package's version has to be in `flags` or in a text.
    system_dirs: tuple[Path, ...] = ()
    allow_undefined: bool = False  # symbols that the loading program provides (an extension of Python)
    program: bool = False  # an executable, of which `stem` is the name
    note: str = ""  # said when the build starts: "once for each torch version, about 20 s"
    # Given all that the compiler or linker printed about what it refuses: what to do about it, or None. The message
    # shows it first.
    explain: Callable[[str], str | None] | None = None

    def __post_init__(self) -> None:
        folders = (*self.include_dirs, *self.system_dirs)
        relative = [str(path) for path in (*self.known_paths(), *folders) if not path.is_absolute()]
        if relative:
            raise ValueError(f"{self.title}: paths have to be absolute: {', '.join(relative)}")
        names = [unit.name for unit in self.units]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"{self.title}: there has to be a unit, and their names have to be unique: {names}")

    @property
    def file_name(self) -> str:
        return self.stem if self.program else f"lib{self.stem}.so"  # dlopen takes the suffix .so on macOS too

    @property
    def languages(self) -> tuple[Language, ...]:
        """What its compilers are needed for. CUDA's is no linker, and works with that of C++."""
        found = dict.fromkeys(unit.language for unit in self.units)
        return tuple(dict.fromkeys([*found, *(("c++",) if "cuda" in found else ())]))

    def known_paths(self) -> list[Path]:
        """The files that we are told about; the compiler may read more."""
        return [*(unit.path for unit in self.units if unit.path is not None), *self.inputs]

    def search_folders(self) -> list[Path]:
        """The folders where people's own headers are found."""
        listed = [os.environ.get(name, "") for name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")]
        from_environment = [Path(folder) for value in listed for folder in value.split(os.pathsep) if folder]
        return [*(path.parent for path in self.known_paths()), *self.include_dirs, *from_environment]


def known_digests(library: Library) -> dict[str, str]:
    """The content of every file that we are told about. BuildError where one cannot be read."""
    return {str(path): _digest(library, path) for path in library.known_paths()}


def library_key(library: Library, compilers: Mapping[Language, Compiler], known: Mapping[str, str]) -> str:
    """A hash of all that is known before compiling; what the compiler reads besides is recorded in the entry."""
    flags = [*library.flags, *library.link_flags, *(flag for unit in library.units for flag in unit.flags)]
    environment = (*ENVIRONMENT, *(CUDA_ENVIRONMENT if "cuda" in compilers else ()))
    content = (
        _RECIPE,
        _abi_version(),
        (sys.platform, platform.machine(), sys.maxsize),
        library.stem,
        [(unit.name, unit.language, unit.text, str(unit.path), unit.flags) for unit in library.units],
        [(unit.name, unit.cuda_flags, unit.architectures) for unit in library.units if unit.language == "cuda"],
        sorted(library.headers.items()),
        ([str(folder) for folder in library.include_dirs], [str(folder) for folder in library.system_dirs]),
        (library.flags, library.link_flags, library.allow_undefined, *(("program",) if library.program else ())),
        sorted(known.items()),
        [(compiler.command, compiler.version) for compiler in compilers.values()],
        [(name, os.environ.get(name)) for name in environment],
        cpu_identity(flags),
    )
    return hashlib.sha256(repr(content).encode("utf-8")).hexdigest()


def digest_of(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(library: Library, path: Path) -> str:
    try:
        return digest_of(path)
    except FileNotFoundError:
        problem, remedy = "does not exist", "Correct the name in `kernels=`, or write the file."
    except OSError as error:
        problem, remedy = f"cannot be read ({error.strerror})", "Make it a readable file."
    raise BuildError(f"cannot build {library.title}: {path} {problem}. {remedy}")


@remember
def _abi_version() -> str:
    header = INCLUDE / "oneop.h"
    found = re.search(r"#define ONEOP_ABI_VERSION (\d+)", header.read_text(encoding="utf-8"))
    if found is None:
        raise AssertionError(f"{header} states no ONEOP_ABI_VERSION")
    return found[1]
