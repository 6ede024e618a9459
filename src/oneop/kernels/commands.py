"""The command lines that compile a unit and link a library, and what they say they read."""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from oneop.kernels.compilers import Compiler, Language, cuda_architectures
from oneop.kernels.inputs import Library, Unit

_SUFFIX: dict[Language, str] = {"c": ".c", "c++": ".cpp", "cuda": ".cu"}
_STANDARD: dict[Language, str] = {"c": "-std=c11", "c++": "-std=c++17", "cuda": "-std=c++17"}
# Flags of the compilation that the link needs as well: -fopenmp, -fsanitize=..., -m32, -flto, -g, ...
_FOR_LINKING = ("-f", "-m", "-g", "-O", "-pthread", "-stdlib", "-arch", "--target", "--sysroot")
# Flags of the C++ compiler that nvcc has to see too. The others go through it.
_SHARED_WITH_NVCC = ("-D", "-U", "-I", "-std=")
# constexpr functions of the standard library, and lambdas, on the GPU; a call there of what runs on the CPU only is an
# error, since it would be one when it runs.
_NVCC = ("--expt-relaxed-constexpr", "--extended-lambda", "-Werror", "cross-execution-space-call")
# nvcc writes code of its own around the kernel, which these would complain about.
_NOT_FOR_NVCC = ("-Wconversion", "-Wpedantic", "-pedantic")

_SHARED_LIBRARY = re.compile(r"\.(?:so|dylib|tbd)(?:\.[\d.]*)?$")


def compile_command(library: Library, unit: Unit, compilers: Mapping[Language, Compiler]) -> tuple[str, ...]:
    if unit.language == "cuda":
        return _cuda_command(library, unit, compilers)
    return (
        *compilers[unit.language].command,
        *("-c", "-O3", "-fPIC", "-fdiagnostics-color=never", _STANDARD[unit.language]),
        # Not -I: a generated header named like one of the system's (time.h) must not stand in for it.
        *("-iquote", "."),
        *_include_flags(library),
        *library.flags,
        *unit.flags,
        *_files(unit),
    )


def _cuda_command(library: Library, unit: Unit, compilers: Mapping[Language, Compiler]) -> tuple[str, ...]:
    compiler, host = compilers["cuda"], compilers["c++"].command
    # nvcc takes a program without arguments; where $CXX has some, it finds a compiler for itself.
    given = len(host) > 1 or os.environ.get("NVCC_CCBIN")
    host_flags = ("-fPIC", "-fdiagnostics-color=never", "-iquote", ".")
    return (
        *compiler.command,
        *("-c", "-O3", _STANDARD[unit.language], "-cudart", "static", "--threads", "0", *_NVCC),
        *(() if given else ("-ccbin", *host)),
        *cuda_architectures(compiler, unit.architectures, library.title),
        *nvcc_flags(host_flags),
        *_include_flags(library),
        *nvcc_flags((*library.flags, *unit.flags)),
        *unit.cuda_flags,
        *_files(unit),
    )


def nvcc_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """Flags of the C++ compiler, as nvcc hands them on to it."""
    return tuple(
        word
        for flag in flags
        if flag not in _NOT_FOR_NVCC
        for word in ((flag,) if flag.startswith(_SHARED_WITH_NVCC) else ("-Xcompiler", flag.replace(",", "\\,")))
    )


def _include_flags(library: Library) -> tuple[str, ...]:
    return (
        *(f"-I{folder}" for folder in library.include_dirs),
        *(word for folder in library.system_dirs for word in ("-isystem", str(folder))),
    )


def _files(unit: Unit) -> tuple[str, ...]:
    source = source_name(unit) if unit.path is None else str(unit.path)
    return "-MD", "-MF", depfile_name(unit), source, "-o", object_name(unit)


def link_command(library: Library, compilers: Mapping[Language, Compiler]) -> tuple[str, ...]:
    compiler = compilers.get("c++") or compilers["c"]
    flags = dict.fromkeys([*library.flags, *(flag for unit in library.units for flag in unit.flags)])
    shared = [flag for flag in flags if flag.startswith(_FOR_LINKING)]
    # Clang leaves the sanitizers' symbols to the program.
    undefined = library.allow_undefined or any(flag.startswith("-fsanitize") for flag in flags)
    return (
        *compiler.command,
        *(() if library.program else _shared(undefined)),
        *shared,
        *(object_name(unit) for unit in library.units),
        *library.link_flags,
        *_cuda_runtime(compilers.get("cuda")),
        *(("-Wl,-t",) if traces(library) else ()),
        *("-o", library.file_name),
    )


def _cuda_runtime(compiler: Compiler | None) -> tuple[str, ...]:
    """Linked statically: it looks for the GPU's driver when it is used, so that the library loads without one."""
    if compiler is None:
        return ()
    return (*(f"-L{folder}" for folder in compiler.library_folders), "-lcudart_static", "-ldl", "-lrt", "-lpthread")


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
