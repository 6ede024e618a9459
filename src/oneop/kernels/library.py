"""The kernel library of one definition file: which translation units it has and how they are compiled."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from oneop.definition.record import Definition
from oneop.errors import BuildError, DefinitionError
from oneop.kernels.generate import (
    Kernel,
    by_definition,
    c_glue_text,
    cpp_glue_text,
    header_name,
    header_text,
    table_text,
)
from oneop.kernels.inputs import INCLUDE, Library, Unit
from oneop.kernels.spec import KernelSpec, Language, language_of

T = TypeVar("T")

ENTRY = "oneop_library_v1"

_WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror=unused-result")
"""A result that must not be dropped is the view that Context::resize returns: only that has the memory."""
_EXPORTS = "oneop.exports"
_MISSING = re.compile(
    r"static(?: |_)assert(?:ion)?(?: failed(?: with| due to[^:]*)?)?:? \"?"
    r"(?P<text>[^\n]* (?:does not define|has to return|runs on the CPU) ?[^\n\"]*)"
)
_NVCC_QUOTES = r"\?(?=[\w<])|(?<=[\w)>])\?"
"""nvcc writes a question mark for a character that C++17 does not know, and a backquote is one."""
_UNDEFINED = re.compile(
    r"undefined (?:reference to|symbol:?) [`'\"]?_?(?P<name>\w+)|^  \"_(?P<apple>\w+)\", referenced", re.M
)


def kernel_library(
    specs: Sequence[KernelSpec],
    *,
    extra_units: Sequence[Unit] = (),
    extra_headers: Mapping[str, str] | None = None,
    extra_exports: Sequence[str] = (),
    title: str | None = None,
    stem: str | None = None,
) -> Library:
    """One library with all these kernels, which exports ``oneop_library_v1`` and nothing else.

    Specs are of one device or of several; those of one operator make one entry of the library's table. A target that
    wraps kernels adds its own units and headers, and the symbols they export. ``title`` and ``stem`` default to the
    name of the first source.
    """
    specs = tuple(specs)
    require_compilable(specs)
    headers = {header_name(own[0].definition): header_text(*own) for own in by_definition(specs) if _sources(own)}
    units = [*_source_units(specs), *_glue_units(specs), *extra_units]
    sources = _sources(specs)
    first = sources[0] if sources else Path(specs[0].definition.base)
    return Library(
        title=title or (f"the kernels of {first.name}" if sources else f"the table of {specs[0].definition.name}"),
        stem=stem or first.stem,
        units=tuple(units),
        headers={**headers, **(extra_headers or {}), _EXPORTS: _export_list([ENTRY, *extra_exports])},
        include_dirs=_unique(INCLUDE, *(folder for spec in specs for folder in spec.options.include_dirs)),
        flags=("-fvisibility=hidden", *_WARNINGS),
        # A C compiler does not link the functions of <math.h> by itself, as a C++ compiler does.
        link_flags=(
            *_export_flags(),
            *_unique(*(f"-l{name}" for spec in specs for name in spec.options.libraries), "-lm"),
        ),
        inputs=sources,
        explain=lambda output: explain(specs, output),
    )


def write_headers(specs: Sequence[KernelSpec], directory: Path) -> list[Path]:
    """Writes the generated header of each operator into a folder, for editors; returns the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for own in by_definition(specs):
        path = directory / header_name(own[0].definition)
        path.write_text(header_text(*own), encoding="utf-8")
        written.append(path)
    return written


def explain(specs: Sequence[KernelSpec], output: str) -> str | None:
    """What a person has to do about the messages of a compiler or linker, where oneop knows it."""
    found = _MISSING.search(output)
    if found is not None:
        return f"{re.sub(_NVCC_QUOTES, '`', found['text'].strip())}."
    undefined = {match["name"] or match["apple"] for match in _UNDEFINED.finditer(output)}
    for spec in specs:
        if spec.language != "c":
            continue
        kernel = Kernel(spec)
        for combination, declaration in zip(kernel.combinations, kernel.c_declarations, strict=True):
            name = f"{kernel.base}{kernel.suffix(combination)}"
            if name in undefined:
                return _missing_function(spec, declaration, [dtype.name for dtype in combination])
    return None


def _missing_function(spec: KernelSpec, declaration: str, dtypes: list[str]) -> str:
    sources = ", ".join(source.name for source in spec.sources)
    asked = "dtypes=... asks for" if spec.options.dtypes is not None else "its definition admits"
    remedy = (
        "Define it, or leave the dtype out of dtypes=...."
        if spec.options.dtypes
        else "Define it, or name those you serve in dtypes=[...]."
    )
    return f"{sources} does not define `{declaration}`, which {asked} ({', '.join(dtypes)}). {remedy}"


def require_compilable(specs: Sequence[KernelSpec]) -> None:
    """Raises BuildError or DefinitionError where these kernels cannot be in one library: before anything is written."""
    if not specs:
        raise BuildError('there is no kernel to build. Name a source: kernels=["scaled_linear.cpp"].')
    seen: dict[str, Definition] = {}
    for spec in specs:
        base = spec.definition.base.casefold()
        if base in seen and seen[base] != spec.definition:
            raise DefinitionError(
                f"{spec.definition.name}: {seen[base].name} in the same file has kernels too, and both headers would "
                f"be {header_name(spec.definition)}. Rename one of them, or move it to another file."
            )
        seen[base] = spec.definition
        for source in spec.sources:
            language_of(source, spec.definition)
            if not source.is_absolute() or re.search(r'["\n]', str(source)):
                raise BuildError(
                    f"{spec.definition.name}: the path of the kernel source {str(source)!r} cannot be included. Give "
                    "an absolute path without quotes and line breaks."
                )


def _sources(specs: Sequence[KernelSpec]) -> tuple[Path, ...]:
    return _unique(*(source for spec in specs for source in spec.sources))


def _source_units(specs: Sequence[KernelSpec]) -> list[Unit]:
    """One for each source. The fresh headers come first, so that an old one beside the source is skipped."""
    units: dict[Path, Unit] = {}
    names: set[str] = set()
    for source in _sources(specs):
        users = [spec for spec in specs if source in spec.sources]
        language = language_of(source, users[0].definition)
        defined = [spec for spec in users if spec.sources[0] == source] if language != "c" else []
        lines = _unique(*(f'#include "{header_name(spec.definition)}"' for spec in users))
        text = "\n".join([*lines, f'#include "{source}"', ""])
        if defined:
            text += "\n" + cpp_glue_text(defined)
        units[source] = Unit(
            _unit_name(source, names),
            language,
            text=text,
            flags=_unique(*(flag for spec in users for flag in _flags(spec, language))),
            cuda_flags=_cuda_flags(users) if language == "cuda" else (),
            architectures=_architectures(users) if language == "cuda" else None,
        )
    return list(units.values())


def _cuda_flags(specs: Sequence[KernelSpec]) -> tuple[str, ...]:
    return tuple(flag for flags in _unique(*(spec.options.cuda_flags for spec in specs)) for flag in flags)


def _architectures(specs: Sequence[KernelSpec]) -> tuple[str, ...] | None:
    chosen = [spec.options.cuda_architectures for spec in specs]
    return None if None in chosen else _unique(*(name for names in chosen if names is not None for name in names))


def _flags(spec: KernelSpec, language: Language) -> tuple[str, ...]:
    march = (f"-march={spec.options.march}",) if spec.options.march is not None else ()
    return (*(("-fvisibility-inlines-hidden",) if language != "c" else ()), *march, *spec.options.flags)


def _glue_units(specs: Sequence[KernelSpec]) -> list[Unit]:
    in_c = [spec for spec in specs if spec.language == "c"]
    language: Language = "c" if in_c else "c++"  # a C++ compiler is enough where no kernel is in C
    units = [Unit("oneop_table", language, text=table_text(specs))]
    if in_c:
        units.append(Unit("oneop_glue", "c", text=c_glue_text(in_c)))
    return units


def _unit_name(source: Path, taken: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", source.stem)
    name, number = plain, 2
    while name.casefold() in taken or name.startswith("oneop_"):
        name, number = f"{plain.removeprefix('oneop_')}_{number}", number + 1
    taken.add(name.casefold())
    return name


def _export_list(symbols: Sequence[str]) -> str:
    if sys.platform == "darwin":
        return "".join(f"_{symbol}\n" for symbol in symbols)
    return f"{{ global: {' '.join(f'{symbol};' for symbol in symbols)} local: *; }};\n"


def _export_flags() -> tuple[str, ...]:
    """The linker runs in the folder with the generated headers; templates of the standard library stay inside too."""
    option = "-exported_symbols_list" if sys.platform == "darwin" else "--version-script"
    return (f"-Wl,{option},{_EXPORTS}",)


def _unique(*items: T) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))
