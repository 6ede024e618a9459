"""One library for ONNX Runtime from the kernels of one definition file: kernels, adapter and table in one file."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from oneop.errors import BuildError
from oneop.kernels.building import Library, Unit, build
from oneop.kernels.delivery import deliver
from oneop.kernels.generate import by_definition
from oneop.kernels.library import kernel_library
from oneop.kernels.spec import Device, KernelSpec
from oneop.targets.onnxruntime.table import table_source

DEVICES: tuple[Device, ...] = ("cpu", "cuda")
"""The CPU, and ONNX Runtime's CUDA execution provider."""

_SOURCES = ("registration", "attributes", "shapes", "compute")
_HEADERS = ("adapter.h", "ort_api.h")
_ENTRY = "RegisterCustomOps"
# The kernels' table is looked up in this very library, whatever else the process has loaded.
_LINK_FLAGS = ("-Wl,-Bsymbolic",) if sys.platform == "linux" else ()


def build_library(specs: Sequence[KernelSpec], output_dir: Path) -> Path:
    """Builds the library and copies it into ``output_dir``, which is made where it does not exist.

    The result, ``lib<definition file>_onnxruntime.so``, needs the C and C++ runtime only. Any language loads it with
    ONNX Runtime's RegisterCustomOpsLibrary.
    """
    return deliver(build(describe(specs)), output_dir)


def cached_library(specs: Sequence[KernelSpec]) -> Path:
    """The same library in the cache, for sessions of this machine."""
    return build(describe(specs))


def describe(specs: Sequence[KernelSpec]) -> Library:
    """What is compiled: the kernels as they are for every target, and the adapter."""
    if not specs:
        raise BuildError(
            "there is nothing to build for onnxruntime: no operator here has kernels. "
            "Give one with oneop.op(..., kernels=[...]); operators without kernels run from the function in the model."
        )
    first = specs[0].sources[0]
    library = kernel_library(
        specs,
        extra_units=_units(specs),
        extra_headers=_texts(_HEADERS),
        extra_exports=[_ENTRY],
        title=f"the ONNX Runtime library of {first.name}",
        stem=f"{first.stem}_onnxruntime",
    )
    return replace(library, link_flags=(*library.link_flags, *_LINK_FLAGS))


def _units(specs: Sequence[KernelSpec]) -> tuple[Unit, ...]:
    sources = _texts(tuple(f"{name}.c" for name in _SOURCES))
    definitions = [own[0].definition for own in by_definition(specs)]
    table = table_source(definitions, _name(specs))
    return (
        Unit("onnxruntime_table", "c", text=table),
        *(Unit(f"onnxruntime_{name}", "c", text=sources[f"{name}.c"]) for name in _SOURCES),
    )


def _name(specs: Sequence[KernelSpec]) -> str:
    """How the library calls itself in messages."""
    names = sorted({spec.definition.name for spec in specs})
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"oneop's library of {shown}"


def _texts(names: Sequence[str]) -> dict[str, str]:
    folder = files("oneop.targets.onnxruntime")
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}
