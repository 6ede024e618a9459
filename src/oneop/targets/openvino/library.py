"""One extension for OpenVINO from the kernels of one definition file: kernels, adapter and table in one library."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from oneop.errors import BuildError
from oneop.kernels.building import Library, Unit, build
from oneop.kernels.delivery import deliver
from oneop.kernels.library import kernel_library
from oneop.kernels.spec import KernelSpec
from oneop.targets.openvino.dtypes import require_dtypes
from oneop.targets.openvino.installation import Installation, installation
from oneop.targets.openvino.table import table_source

ENTRY = "create_extensions"
_VERSION = "oneop_openvino_version"
VERSION_MARK = "oneop.openvino.release="
"""Stands in the library before the release of OpenVINO that it was built with."""

_SOURCES = ("adapter", "attributes", "threads")
# The kernels' table is looked up in this very library, and the library stays: its threads wait in it.
_LINK_FLAGS = ("-Wl,-Bsymbolic", "-Wl,-z,nodelete") if sys.platform == "linux" else ()
# The adapter's work is done once a node or a call; optimising it more would only make the compiler slower.
_FLAGS = ("-O1",)


def build_library(specs: Sequence[KernelSpec], output_dir: Path) -> Path:
    """Builds the extension and copies it into ``output_dir``, which is made where it does not exist.

    The result, ``lib<definition file>_openvino.so``, serves the release of OpenVINO that is installed here. Python and
    C++ load it with ``Core.add_extension``.
    """
    return deliver(build(describe(specs)), output_dir)


def cached_library(specs: Sequence[KernelSpec]) -> Path:
    """The same library in the cache, for models of this machine."""
    return build(describe(specs))


def describe(specs: Sequence[KernelSpec]) -> Library:
    """What is compiled: the kernels as they are for every target, and the adapter."""
    if not specs:
        raise BuildError(
            "there is nothing to build for openvino: no operator here has kernels. Give one with "
            'oneop.op(..., kernels=[...]); operators without kernels run in files with fallback="inline".'
        )
    require_dtypes(specs)
    openvino = installation()
    first = specs[0].sources[0]
    library = kernel_library(
        specs,
        extra_units=_units(specs, openvino),
        extra_headers=_texts(("adapter.h",)),
        extra_exports=[ENTRY, _VERSION],
        title=f"the OpenVINO extension of {first.name}",
        stem=f"{first.stem}_openvino",
    )
    return replace(
        library,
        system_dirs=(*library.system_dirs, openvino.include),
        link_flags=(*library.link_flags, *map(str, openvino.libraries), *_LINK_FLAGS),
    )


def _units(specs: Sequence[KernelSpec], openvino: Installation) -> tuple[Unit, ...]:
    sources = _texts(tuple(f"{name}.cpp" for name in _SOURCES))
    title = ", ".join(spec.definition.name for spec in specs)
    table = table_source([spec.definition for spec in specs], title)
    version = f'\nextern "C" ONEOP_EXPORT const char {_VERSION}[] = "{VERSION_MARK}{openvino.version}";\n'
    flags = (*_FLAGS, *openvino.flags, *(("-DONEOP_OPENVINO_TBB",) if openvino.has_tbb else ()))
    return (
        Unit("openvino_table", "c++", text=table + version, flags=flags),
        *(Unit(f"openvino_{name}", "c++", text=sources[f"{name}.cpp"], flags=flags) for name in _SOURCES),
    )


def _texts(names: Sequence[str]) -> dict[str, str]:
    folder = files("oneop.targets.openvino")
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}
