"""A library that is in C alone, which a C compiler links."""

import ctypes
from pathlib import Path

from jaxtyping import Float32
from torch import Tensor

from oneop.definition.signature import definition_of
from oneop.kernels.building import build
from oneop.kernels.library import kernel_library
from oneop.kernels.spec import KernelSpec

SOURCE = """
#include "powers.h"
#include <math.h>

int powers(const powers_args *a, oneop_context *ctx) {
  (void)ctx;
  for (int64_t i = 0; i < a->n; ++i)
    a->out.data[i] = powf(a->x.data[i], (float)a->exponent) + erff(a->x.data[i]);
  return 0;
}
"""


def powers(x: Float32[Tensor, "n"], *, exponent: float) -> Float32[Tensor, "n"]:
    """x ** exponent + erf(x)"""


def test_it_may_use_the_functions_of_math_h(tmp_path: Path) -> None:
    source = tmp_path / "powers.c"
    source.write_text(SOURCE)
    spec = KernelSpec(definition_of(powers, "c_library::powers"), (source,))
    library = build(kernel_library([spec]), cache=tmp_path / "cache")
    assert ctypes.CDLL(str(library)).oneop_library_v1
