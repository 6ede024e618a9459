"""The command lines that compile a unit and link a library, and what they say they read."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from oneop.kernels.compilers import Compiler, Language
from oneop.kernels.inputs import Library, Unit

_SUFFIX: dict[Language, str] = {"c": ".c", "c++": ".cpp"}
_STANDARD: dict[Language, str] = {"c": "-std=c11", "c++": "-std=c++17"}
# Flags of the compilation that the link needs as well: -fopenmp, -fsanitize=..., -m32, -flto, -g, ...
_FOR_LINKING = ("-f", "-m", "-g", "-O", "-pthread", "-stdlib", "-arch", "--target", "--sysroot")

_SHARED_LIBRARY = re.compile(r"\.(?:so|dylib|tbd)(?:\.[\d.]*)?$")


def compile_command(library: Library, unit: Unit, compiler: Compiler) -> tuple[str, ...]:
    return (
        *compiler.command,
        *("-c", "-O3", "-fPIC", "-fdiagnostics-color=never", _STANDARD[unit.language]),
        # Not -I: a generated header named like one of the system's (time.h) must not stand in for it.
        *("-iquote", "."),
        *(f"-I{folder}" for folder in library.include_dirs),
        *(word for folder in library.system_dirs for word in ("-isystem", str(folder))),
        *library.flags,
        *unit.flags,
        *("-MD", "-MF", depfile_name(unit)),
        source_name(unit) if unit.path is None else str(unit.path),
        *("-o", object_name(unit)),
    )


def link_command(library: Library, compilers: Mapping[Language, Compiler]) -> tuple[str, ...]:
    compiler = compilers.get("c++") or compilers["c"]
    flags = dict.fromkeys([*library.flags, *(flag for unit in library.units for flag in unit.flags)])
    shared = [flag for flag in flags if flag.startswith(_FOR_LINKING)]
    # Clang leaves the sanitizers' symbols to the program.
    undefined = library.allow_undefined or any(flag.startswith("-fsanitize") for flag in flags)
    return (
        *compiler.command,
        *_shared(undefined),
        *shared,
        *(object_name(unit) for unit in library.units),
        *library.link_flags,
        *(("-Wl,-t",) if traces(library) else ()),
        *("-o", library.file_name),
    )


def traces(library: Library) -> bool:
    """Whether the linker is asked to list what it read: libraries of the user's may change."""
    return bool(library.link_flags)


def traced_files(output: bytes) -> list[Path]:
    """The archives and objects that a linker listed: they are copied into the library, shared libraries are not.

    Members of archives appear as `(libx.a)x.o` or `libx.a(x.o)`.
    """
    lines = [os.fsdecode(line).strip() for line in output.splitlines()]
    names = [re.sub(r"\([^()]*\)$", "", re.sub(r"^\(([^()]*)\).*$", r"\1", line)) for line in lines]
    copied = [Path(name) for name in dict.fromkeys(names) if not _SHARED_LIBRARY.search(name)]
    return [path for path in copied if path.is_absolute() and path.is_file()]


def source_name(unit: Unit) -> str:
    return f"{unit.name}.unit{_SUFFIX[unit.language]}"


def object_name(unit: Unit) -> str:
    return f"{unit.name}.o"


def depfile_name(unit: Unit) -> str:
    return f"{unit.name}.d"


def _shared(undefined: bool) -> tuple[str, ...]:
    if sys.platform == "darwin":
        return ("-dynamiclib", *(("-undefined", "dynamic_lookup") if undefined else ()))
    return ("-shared", *(() if undefined else ("-Wl,-z,defs",)))
