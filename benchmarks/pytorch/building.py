"""What a person waits for: an edited kernel, and the runtime's first compilation. Rows 5 and 6 of the table."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Measured, Row

ROOT = Path(__file__).parents[2]

OPERATOR = '''
from jaxtyping import Float
from torch import Tensor
import oneop

@oneop.op("edited::muladd", kernels=["kernel.cpp"])
def muladd(x: Float[Tensor, "n"], w: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
    """alpha * x * w + 0"""
    return alpha * x * w
'''
KERNEL = """
#include "muladd.h"
template <class T>
void muladd(const muladd_args<T>& a, oneop::Context&) {
  for (int64_t i = 0; i < a.n; ++i) a.out(i) = static_cast<T>(a.alpha) * a.x(i) * a.w(i) + VERSION;
}
"""
RUN_OPERATOR = """
import time, torch, oneop
begin = time.perf_counter()
from operator_file import muladd
assert muladd(torch.ones(16), torch.ones(16), alpha=2.0)[0] == 2 + VERSION
print(time.perf_counter() - begin)
"""
RUN_INLINE = """
import time, torch, torch.utils.cpp_extension
begin = time.perf_counter()
source = '''
torch::Tensor muladd(const torch::Tensor& x, const torch::Tensor& w, double alpha) {
  const auto xc = x.contiguous(), wc = w.contiguous();
  auto out = torch::empty_like(xc);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "muladd", [&] {
    const auto* xs = xc.const_data_ptr<scalar_t>();
    const auto* ws = wc.const_data_ptr<scalar_t>();
    auto* ys = out.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < out.numel(); ++i) ys[i] = static_cast<scalar_t>(alpha) * xs[i] * ws[i] + VERSION;
  });
  return out;
}
'''
module = torch.utils.cpp_extension.load_inline("edited", source, functions=["muladd"])
assert module.muladd(torch.ones(16), torch.ones(16), 2.0)[0] == 2 + VERSION
print(time.perf_counter() - begin)
"""
BUILD_RUNTIME = """
import time
from oneop.targets.pytorch import runtime
begin = time.perf_counter()
runtime.build_runtime()
print(time.perf_counter() - begin)
"""


def rows() -> list[Row]:
    """Both take minutes at worst: the peer's compiler does."""
    with tempfile.TemporaryDirectory() as folder:
        ours, inline = _edit_ours(Path(folder)), _edit_inline(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        runtime = _run(BUILD_RUNTIME, ROOT, ONEOP_CACHE=folder)
    return [
        Row("an edited kernel, run again", "load_inline", Measured(ours, inline, ours / inline), 0.15),
        Row("the runtime's first compilation", "seconds", Measured(runtime, None, runtime), 30.0),
    ]


def _edit_ours(folder: Path) -> float:
    """Seconds from the definition to the result in a fresh process, after one line of the kernel changed."""
    (folder / "operator_file.py").write_text(OPERATOR, encoding="utf-8")
    seconds = 0.0
    for version in ("0", "1"):  # the first fills the cache: the runtime, the compiler's identity
        (folder / "kernel.cpp").write_text(KERNEL.replace("VERSION", version), encoding="utf-8")
        seconds = _run(RUN_OPERATOR.replace("VERSION", version), folder)
    return seconds


def _edit_inline(folder: Path) -> float:
    """The same change through torch.utils.cpp_extension.load_inline."""
    seconds = 0.0
    for version in ("0", "1"):
        seconds = _run(RUN_INLINE.replace("VERSION", version), folder, TORCH_EXTENSIONS_DIR=str(folder / "inline"))
    return seconds


def _run(program: str, folder: Path, **variables: str) -> float:
    beside_python = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # ninja is there
    environment = {**os.environ, "PATH": beside_python, **variables}
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(result.stdout.splitlines()[-1])
