"""A library that is not the definition's is refused by name; a new one takes the old one's place."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pytorch import runtime_operators as ops

import oneop
from oneop.kernels.building import find_compiler
from oneop.targets.pytorch import native, runtime

INCLUDE = Path(oneop.__file__).parent / "kernels" / "include"
SOURCE = """
#include "oneop.h"
static int shapes(const oneop_call *call) {
  const oneop_tensor *x = call->inputs[0].tensors;
  oneop_tensor *out = call->outputs[0].tensors;
  out->ndim = x->ndim;
  for (int d = 0; d < x->ndim; ++d) out->shape[d] = x->shape[d];
  return 0;
}
static int run(const oneop_call *call) {
  const float *x = call->inputs[0].tensors->data;
  float *out = call->outputs[0].tensors->data;
  for (int64_t i = 0; i < call->inputs[0].tensors->shape[0]; ++i) out[i] = FACTOR * x[i];
  return STATUS;
}
static const oneop_dtype float32[] = {{2, 32, 1}};
static const oneop_kernel kernels[] = {{float32, 1, run}};
static const oneop_operator operators[] = {{NAME, FINGERPRINT, INPUTS, 1, 0, 1, 1, 1, shapes, kernels}};
static const oneop_library library = {VERSION, 1, operators};
ONEOP_EXPORT const oneop_library *SYMBOL(void) { return &library; }
"""


def handmade(folder: Path, **changes: object) -> Path:
    """A kernel library for runtime::native, written by hand, with something changed."""
    definition = ops.native.definition
    facts = {
        "NAME": f'"{definition.name}"',
        "FINGERPRINT": f'"{definition.fingerprint}"',
        "INPUTS": 1,
        "VERSION": 1,
        "SYMBOL": "oneop_library_v1",
        "FACTOR": "2",
        "STATUS": 0,
        **changes,
    }
    source, path = folder / "handmade.c", folder / f"handmade_{abs(hash(str(sorted(changes.items()))))}.so"
    source.write_text(SOURCE, encoding="utf-8")
    command = [*find_compiler("c").command, "-shared", "-fPIC", f"-I{INCLUDE}", str(source), "-o", str(path)]
    subprocess.run([*command, *(f"-D{name}={value}" for name, value in facts.items())], check=True)
    return path


@pytest.fixture
def own_native() -> Iterator[object]:
    """Whatever a test attaches, the built library is back afterwards."""
    call = native.prepare(ops.native)
    yield call
    native.replace(ops.native)


WRONG = {
    "ABI": ({"VERSION": 2}, " has ABI version 2; this oneop reads version 1. Build it again."),
    "fingerprint": (
        {"FINGERPRINT": '"0123456789abcdef"'},
        f" was built from another definition: its fingerprint is 0123456789abcdef, the definition's is "
        f"{ops.native.definition.fingerprint}. Build it again.",
    ),
    "symbol": (
        {"SYMBOL": "something_else"},
        " is not a kernel library: it has no function oneop_library_v1. Build it again.",
    ),
    "operator": ({"NAME": '"demo::other"'}, " does not hold it; it holds demo::other. Build it again."),
    "counts": (
        {"INPUTS": 2},
        " counts 2 inputs, 1 outputs, 0 attributes and 1 dtype variables; the definition has 1, 1",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_library_is_refused(case: str, own_native: object, tmp_path: Path) -> None:
    changes, text = WRONG[case]
    library = handmade(tmp_path, **changes)
    with pytest.raises(oneop.BuildError, match=re.escape(f"runtime::native: {library}{text}")):
        runtime.attach(ops.native.definition, library, None)
    assert ops.native(torch.ones(1)).item() == 2.0  # what was attached still serves


def test_what_is_no_library_is_refused(own_native: object, tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("not a library", encoding="utf-8")
    for path in (text, tmp_path / "missing.so"):
        with pytest.raises(
            oneop.BuildError, match=rf"runtime::native: {re.escape(str(path))} cannot be loaded: .*Build it"
        ):
            runtime.attach(ops.native.definition, path, None)


def test_a_new_library_takes_the_place_of_the_old(own_native: object, tmp_path: Path) -> None:
    runtime.attach(ops.native.definition, handmade(tmp_path, FACTOR="5"), None)
    assert torch.ops.runtime.native(torch.ones(1)).item() == 5.0
    call = runtime.attach(ops.native.definition, handmade(tmp_path, FACTOR="7"), None)
    assert call(torch.ones(1)).item() == torch.ops.runtime.native(torch.ones(1)).item() == 7.0


def test_a_kernel_that_fails_without_a_word(own_native: object, tmp_path: Path) -> None:
    runtime.attach(ops.native.definition, handmade(tmp_path, STATUS=1), None)
    text = 'runtime::native: the kernel failed and gave no reason. Let it call fail("...").'
    with pytest.raises(oneop.CallError, match=re.escape(text)):
        ops.native(torch.ones(1))


def test_a_gradient_that_does_not_fit_is_refused(own_native: object, tmp_path: Path) -> None:
    native.prepare(ops.muladd)
    library = handmade(tmp_path)
    with pytest.raises(oneop.BuildError, match="runtime::native: its gradient runtime::muladd_grad does not fit it: "):
        runtime.attach(ops.native.definition, library, "runtime::muladd_grad")
    with pytest.raises(oneop.BuildError, match=r"runtime::native: runtime::missing has no schema\. Register it before"):
        runtime.attach(ops.native.definition, library, "runtime::missing")
