"""Builds what runs kernels outside Python: the driver program, and the kernel library, plain or with a sanitizer."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from oneop import registry
from oneop.kernels.building import build
from oneop.kernels.inputs import INCLUDE, Library, Unit
from oneop.kernels.library import kernel_library

if TYPE_CHECKING:
    from oneop.operator import Operator

Sanitizer = Literal["address", "thread"]

_DRIVER = Path(__file__).with_name("driver")
_UNITS = ("main", "cases", "blocks", "call", "results", "properties", "together", "statics", "report")
_STRICT = ("-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion")
_COMMON = ("-g", "-O1", "-fno-omit-frame-pointer")
_UNSUPPORTED = re.compile(
    r"cannot find [^\n]*[at]san|library not found for [^\n]*clang_rt|no such file or directory: '[^\n']*clang_rt|"
    r"(?:unsupported|unrecognized|unknown|not supported)[^\n]*sanitize|sanitize[^\n]*(?:not supported|not recognized)",
    re.I,
)


@dataclass(frozen=True)
class Kind:
    """What a sanitizer is to the compiler and to the reader."""

    title: str
    flags: tuple[str, ...]
    libraries: str


KINDS: dict[Sanitizer, Kind] = {
    "address": Kind(
        "AddressSanitizer and UndefinedBehaviorSanitizer",
        ("-fsanitize=address,undefined", "-fsanitize-recover=all", *_COMMON),
        "libasan libubsan",
    ),
    "thread": Kind("ThreadSanitizer", ("-fsanitize=thread", *_COMMON), "libtsan"),
}


def driver(sanitizer: Sanitizer | None = None) -> Path:
    """The program that calls kernels. BuildError says what to install where the compiler has no sanitizers."""
    flags = KINDS[sanitizer].flags if sanitizer is not None else ()
    return build(
        Library(
            title="the program that drives kernels" + _with(sanitizer),
            stem="oneop_driver",
            units=tuple(Unit(name, "c", path=_DRIVER / f"{name}.c") for name in _UNITS),
            include_dirs=(INCLUDE,),
            flags=("-pthread", *_STRICT, *flags),
            link_flags=("-ldl", "-lm") if sys.platform == "linux" else (),
            program=True,
            explain=lambda output: _explain(sanitizer, output),
        )
    )


def kernels(operator: "Operator", sanitizer: Sanitizer | None = None) -> Path:
    """The library of an operator's kernels: without a sanitizer the one that PyTorch loads."""
    together = registry.compiled_together(item for item in registry.defined_with(operator) if item.has_kernels)
    library = kernel_library([item.kernel_spec() for item in together])
    if sanitizer is not None:
        # Behind each unit's own flags: a sanitizer needs to see where a person asked for speed.
        units = tuple(replace(unit, flags=(*unit.flags, *KINDS[sanitizer].flags)) for unit in library.units)
        known = library.explain
        library = replace(
            library,
            units=units,
            title=library.title + _with(sanitizer),
            explain=lambda output: _explain(sanitizer, output) or (known(output) if known is not None else None),
        )
    return build(library)


def sources(operators: "Sequence[Operator]") -> list[Path]:
    """The files that people wrote: those that a sanitizer's report is about."""
    return [*dict.fromkeys(path for operator in operators for path in operator.kernel_spec().sources)]


def _with(sanitizer: Sanitizer | None) -> str:
    return "" if sanitizer is None else f", with {KINDS[sanitizer].title}"


def _explain(sanitizer: Sanitizer | None, output: str) -> str | None:
    if sanitizer is None or _UNSUPPORTED.search(output) is None:
        return None
    kind = KINDS[sanitizer]
    return (
        f"This compiler has no {kind.title}. Debian, Ubuntu: `apt-get install gcc` brings it; Fedora: `dnf install"
        f" {kind.libraries}`; Alpine: `apk add clang compiler-rt`, then CC=clang CXX=clang++. Or set $CC and $CXX to a"
        " compiler that has it."
    )
