"""One library for TensorRT from the kernels of one definition file: kernels, plugins and their creators in one file."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oneop.definition.dims import Expr
from oneop.errors import BuildError
from oneop.kernels.building import Library, Unit, build
from oneop.kernels.delivery import deliver, write_file
from oneop.kernels.library import kernel_library, require_compilable
from oneop.kernels.spec import KernelSpec
from oneop.targets.tensorrt.checks import served
from oneop.targets.tensorrt.headers import Headers, find_headers
from oneop.targets.tensorrt.shapes import parse_bound, unknown_names
from oneop.targets.tensorrt.sources import SUPPORT, plugin_text, support_text

EXPORTS = ("getCreators", "setLoggerFinder")
"""What TensorRT looks for in a library of plugins."""

WORKSPACE = 1 << 20
"""Bytes of workspace that each plugin asks for; a kernel whose scratch memory needs more takes the rest elsewhere."""

STAND_IN = "-DONEOP_TENSORRT_STAND_IN"
# The kernels' table is looked up in this very library, whatever else the process has loaded.
_LINK_FLAGS = ("-Wl,-Bsymbolic",) if sys.platform == "linux" else ()

Bounds = Mapping[str, Mapping[str, str]]
"""By ``namespace::base`` of an operator and the name of an unknown size: an expression, ``{"demo::nonzero": {"k":
"n*m"}}``."""


def build_library(
    specs: Sequence[KernelSpec], output_dir: Path, *, bounds: Bounds | None = None, workspace: int = WORKSPACE
) -> Path:
    """Writes the plugins' sources into ``output_dir``, builds the library and copies it there.

    The sources are ``<kernel file>_plugin.cpp``, by the first of the kernels' files, and what is the same for every
    operator, ``oneop_tensorrt.h`` and ``.cpp``; the library is ``lib<kernel file>_tensorrt.so``.

    ``bounds`` says how large sizes can become that only the kernel knows (``?k``): TensorRT takes memory for that. The
    default is the number of elements of the largest input. ``workspace`` is what each plugin asks for in bytes.

    Raises BuildError where TensorRT cannot express a definition, an option is no bound and no size, or there are no
    headers to compile against. In the latter case the sources are there, and the message says so.
    """
    _require_workspace(workspace)
    chosen = served(specs)
    require_compilable([spec for spec in specs if spec.sources])
    texts = source_texts(chosen, bounds=bounds or {}, workspace=workspace)
    for name, text in texts.items():
        write_file(output_dir / name, text.encode())
    try:
        headers = find_headers()
    except BuildError as error:
        raise BuildError(
            f"the plugins' sources are in {output_dir} ({', '.join(texts)}), but the library was not built: {error}"
        ) from None
    return deliver(build(describe(specs, texts, headers)), output_dir)


def source_texts(specs: Sequence[KernelSpec], *, bounds: Bounds, workspace: int = WORKSPACE) -> dict[str, str]:
    """The sources, by file name."""
    first = specs[0].sources[0]
    parsed = _parse_bounds(specs, bounds)
    text = plugin_text(specs, title=first.name, bounds=parsed, workspace=workspace)
    return {f"{first.stem}_plugin.cpp": text, **{name: support_text(name) for name in SUPPORT}}


def describe(specs: Sequence[KernelSpec], texts: Mapping[str, str], headers: Headers) -> Library:
    """What is compiled: the kernels as they are for every target, and the plugins' sources.

    Gradient operators have no plugin, but their kernels may stand in the same file as those of the others.
    """
    compiled = [spec for spec in specs if spec.sources]
    first = compiled[0].sources[0]
    units = [
        Unit(f"tensorrt_{Path(name).stem}", "c++", text=text) for name, text in texts.items() if name.endswith(".cpp")
    ]
    library = kernel_library(
        compiled,
        extra_units=units,
        extra_headers={name: text for name, text in texts.items() if name.endswith(".h")},
        extra_exports=EXPORTS,
        title=f"the TensorRT library of {first.name}",
        stem=f"{first.stem}_tensorrt",
    )
    version = f"-DONEOP_TENSORRT_HEADERS={'.'.join(map(str, headers.version))}"  # part of the key of the build
    return replace(
        library,
        flags=(*library.flags, version),
        link_flags=(*library.link_flags, *_LINK_FLAGS),
        system_dirs=(*library.system_dirs, *headers.folders),
    )


def stand_in(library: Library) -> Library:
    """The same library with the CPU's kernels in the place of CUDA's: how the plugins are tested without a GPU."""
    return replace(library, flags=(*library.flags, STAND_IN), stem=f"{library.stem}_stand_in")


def _require_workspace(given: object) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < 2**63:
        raise BuildError(
            f"tensorrt: workspace={given!r} is no number of bytes. Give a whole number from 0, such as 4 << 20."
        )


def _parse_bounds(specs: Sequence[KernelSpec], bounds: Bounds) -> dict[str, dict[str, Expr]]:
    if not isinstance(bounds, Mapping) or not all(isinstance(given, Mapping) for given in bounds.values()):
        raise BuildError(
            f"tensorrt: bounds={bounds!r} does not say which size of which operator is bounded. Write for example"
            ' bounds={"demo::nonzero": {"k": "n*m"}}.'
        )
    definitions = {spec.definition.name: spec.definition for spec in specs}
    parsed: dict[str, dict[str, Expr]] = {}
    for operator, given in bounds.items():
        if operator not in definitions:
            raise BuildError(f"bounds: {operator!r} is not built here. Built are: {', '.join(sorted(definitions))}.")
        unknown = unknown_names(definitions[operator])
        for name, text in given.items():
            if name not in unknown:
                known = ", ".join(f"?{item}" for item in unknown) or "none"
                raise BuildError(f"{operator}: there is no `?{name}` to give a bound. Sizes of that kind: {known}.")
            parsed.setdefault(operator, {})[name] = parse_bound(definitions[operator], name, text)
    return parsed
