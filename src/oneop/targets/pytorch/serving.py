"""One library from the kernels of some operators that a C++ program loads: torch then knows them, without Python."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oneop.errors import BuildError
from oneop.kernels.building import Library, Unit, build
from oneop.kernels.delivery import deliver
from oneop.kernels.generate import by_definition
from oneop.kernels.library import ENTRY, kernel_library
from oneop.kernels.literals import c_string
from oneop.kernels.spec import KernelSpec
from oneop.targets.pytorch import runtime
from oneop.targets.pytorch.schema import schema_text

# Each library looks up its own table, whatever else the process has loaded.
_LINK_FLAGS = ("-Wl,-Bsymbolic",) if sys.platform == "linux" else ()

_REGISTRATION = """\
// Makes the operators known to torch when this library is loaded.
#include <cstdio>

#include "oneop.h"

extern "C" const oneop_library *{entry}(void);
extern "C" const char *oneop_torch_serve(const char *schema, const char *description, const oneop_library *own);

namespace {{

struct Served {{
  const char *schema, *description;
}};
const Served served[] = {{
{rows}
}};

const bool registered = [] {{
  for (const auto &one : served) // an exception here would end the program
    if (const char *problem = oneop_torch_serve(one.schema, one.description, {entry}()))
      std::fprintf(stderr, "oneop: %s\\n", problem);
  return true;
}}();

}} // namespace
"""


def build_library(specs: Sequence[KernelSpec], output_dir: Path) -> Path:
    """Builds the library and copies it into ``output_dir``, which is made where it does not exist.

    The result, ``lib<definition file>_pytorch.so``, holds schemas, kernels and the runtime. It registers the operators
    when it is loaded: with ``dlopen``, before the model, in a program that links the same release of torch.
    """
    return deliver(build(describe(specs)), output_dir)


def describe(specs: Sequence[KernelSpec]) -> Library:
    """What is compiled: the kernels as they are for every target, the runtime, and what registers them.

    Gradients stay out, but for what shares a source with an operator: a program without Python infers.
    """
    served = [own[0] for own in by_definition(specs) if not own[0].definition.is_gradient]
    if not served:
        raise BuildError(
            "there is nothing to build for pytorch: no operator here has kernels. "
            "Give one with oneop.op(..., kernels=[...]), or decompose it into its reference (docs/serving.md)."
        )
    core = runtime.core_library()
    first = specs[0].sources[0]
    library = kernel_library(
        specs,
        extra_units=[*_runtime_units(core), Unit("oneop_serving", "c++", text=_registration(served))],
        title=f"the PyTorch library of {first.name}",
        stem=f"{first.stem}_pytorch",
    )
    return replace(
        library,
        include_dirs=(*library.include_dirs, *core.include_dirs),
        system_dirs=core.system_dirs,
        link_flags=(*library.link_flags, *core.link_flags, *_LINK_FLAGS),
        allow_undefined=True,
        note=core.note,
    )


def _runtime_units(core: Library) -> list[Unit]:
    return [replace(unit, name=f"oneop_{unit.name}", flags=(*core.flags, *unit.flags)) for unit in core.units]


def _registration(specs: Sequence[KernelSpec]) -> str:
    texts = [(schema_text(spec.definition), runtime.describe(spec.definition, Path(), None)) for spec in specs]
    rows = "\n".join(f"    {{{c_string(schema)}, {c_string(description)}}}," for schema, description in texts)
    return _REGISTRATION.format(entry=ENTRY, rows=rows)
