"""A library that is not the definition's is refused by name; a new one takes the old one's place."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from pytorch import runtime_operators as ops

import oneop
from oneop import registry
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


class Notebook:
    """Cells that define one operator, in the way of a notebook: each has a name of its own, and none is a file."""

    HEAD = "import oneop\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
    OPERATOR = """
@oneop.op("notebook::{name}", kernels=[{source!r}])
def {name}(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return {factor} * x
"""
    GRADIENT = """
@{name}.gradient(kernels=[{source!r}])
def {name}_grad(grad, x):
    return {factor} * grad
"""
    KERNELS = """
#include "{name}.h"
#include "{name}_grad.h"
template <class T> void {name}(const {name}_args<T> &a, oneop::Context &) {{
  for (int64_t i = 0; i < a.n; ++i) a.out(i) = T({factor}) * a.x(i);
}}
template <class T> void {name}_grad(const {name}_grad_args<T> &a, oneop::Context &) {{
  for (int64_t i = 0; i < a.n; ++i) a.grad_x(i) = T({factor}) * a.grad(i);
}}
"""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.source = folder / f"{name}.cpp"
        self.scope: dict[str, object] = {}
        self.cells = 0

    def run(self, factor: int, *, kernels: str | None = None, gradient: bool = True) -> oneop.Operator:
        facts = {"name": self.name, "factor": factor, "source": str(self.source)}
        self.source.write_text((kernels or self.KERNELS).format(**facts), encoding="utf-8")
        self.cells += 1
        text = self.HEAD + (self.OPERATOR + (self.GRADIENT if gradient else "")).format(**facts)
        exec(compile(text, f"<ipython-input-{self.cells}>", "exec"), self.scope)
        return self.scope[self.name]

    def through_torch(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(torch.ops.notebook, self.name)(x)


def value_and_gradient(call: Callable[[torch.Tensor], torch.Tensor]) -> tuple[float, float]:
    x = torch.ones(1, requires_grad=True)
    y = call(x)
    return y.item(), torch.autograd.grad(y.sum(), x)[0].item()


def test_an_operator_and_its_gradient_are_defined_again(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, "again")
    first = notebook.run(2)
    assert value_and_gradient(first) == (2.0, 2.0)
    x = torch.ones(1, requires_grad=True)
    recorded = first(x)
    second = notebook.run(3)
    assert value_and_gradient(notebook.through_torch) == (3.0, 3.0)  # torch's own path comes first: it is not stale
    assert value_and_gradient(second) == value_and_gradient(first) == (3.0, 3.0)
    assert torch.autograd.grad(recorded.sum(), x)[0].item() == 3.0
    third = notebook.run(4)
    assert value_and_gradient(third) == value_and_gradient(notebook.through_torch) == (4.0, 4.0)


def test_the_gradient_alone_is_what_is_called_after_a_new_definition(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, "backward")
    x = torch.ones(1, requires_grad=True)
    recorded = notebook.run(2)(x)
    notebook.run(3)
    assert torch.autograd.grad(recorded.sum(), x)[0].item() == 3.0


def test_a_new_definition_without_the_gradient_derives_it(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, "derived")
    assert value_and_gradient(notebook.run(2)) == (2.0, 2.0)
    assert value_and_gradient(notebook.run(3, gradient=False)) == (3.0, 3.0)


def test_kernels_that_do_not_compile_are_not_replaced_by_the_old_ones(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, "broken")
    assert value_and_gradient(notebook.run(2)) == (2.0, 2.0)
    operator = notebook.run(3, kernels="broken\n")
    for call in (notebook.through_torch, operator, notebook.through_torch):
        with pytest.raises(oneop.BuildError, match=r"cannot build the kernels of broken\.cpp"):
            call(torch.ones(1))
    assert value_and_gradient(notebook.run(5)) == (5.0, 5.0)


def test_calls_of_other_threads_while_an_operator_is_defined_again(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path, "threads")
    operator = notebook.run(2)
    operator(torch.ones(1))
    seen: list[float] = []
    problems: list[BaseException] = []
    done = threading.Event()

    def work(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
        try:
            while not done.is_set():
                seen.append(sum(value_and_gradient(call)))
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(call,)) for call in (operator, notebook.through_torch) * 2]
    for thread in threads:
        thread.start()
    assert value_and_gradient(notebook.run(3)) == (3.0, 3.0)
    at = len(seen)
    while len(seen) < at + 50 and not problems:
        time.sleep(0.01)
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert set(seen) <= {4.0, 5.0, 6.0}
    assert seen[-1] == 6.0


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    native.prepare(ops.native)
    held, done = threading.Event(), threading.Event()

    def build() -> None:
        with registry.lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=build)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        native.prepare(ops.native)
        os._exit(7)
    try:
        status, deadline = (0, 0), time.monotonic() + 10
        while status[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
            status = os.waitpid(child, os.WNOHANG)
        assert os.waitstatus_to_exitcode(status[1]) == 7
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        done.set()
        thread.join()


def test_a_kernel_file_that_is_missing_is_named_at_the_first_call(tmp_path: Path) -> None:
    code = """
import oneop, torch
from jaxtyping import Float
from torch import Tensor

@oneop.op("missing::one", kernels=["one.cpp"])
def one(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x

try:
    one(torch.zeros(1))
except oneop.BuildError as error:
    print(error)
"""
    (tmp_path / "one.py").write_text(code)
    found = subprocess.run([sys.executable, "one.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == (
        f"cannot build the kernels of one.cpp: {tmp_path / 'one.cpp'} does not exist. Correct the name in"
        " `kernels=`, or write the file."
    )


KERNEL_FILE = """
import oneop, torch
from jaxtyping import Float
from torch import Tensor

@oneop.op("warned::one", kernels=["one.cpp"], dtypes=["float32"])
def one(x: Float[Tensor, "n"]) -> Float[Tensor, "?k"]:
    return x

try:
    print(one(torch.ones(2)))
except oneop.BuildError as error:
    print(error)
"""


@pytest.mark.parametrize("used", [True, False])
def test_warnings_are_shown_and_a_dropped_resize_is_an_error(tmp_path: Path, used: bool) -> None:
    kernel = f"""
#include "one.h"
template <class T> void one(const one_args<T> &a, oneop::Context &ctx) {{
  {"const auto out = " if used else ""}ctx.resize(a.out, {{a.n}});
  int unused_number = 1;
  {"for (std::int64_t i = 0; i < a.n; ++i) out(i) = a.x(i);" if used else ""}
}}
"""
    (tmp_path / "one.py").write_text(KERNEL_FILE)
    (tmp_path / "one.cpp").write_text(kernel)
    environment = {**os.environ, "ONEOP_QUIET": ""}
    found = subprocess.run(
        [sys.executable, "one.py"], cwd=tmp_path, capture_output=True, text=True, check=True, env=environment
    )
    if used:
        assert found.stdout == "tensor([1., 1.])\n"
        assert "the compiler has something to say about the kernels of one.cpp:" in found.stderr
        assert "unused variable" in found.stderr
    else:
        assert "one.cpp:4:" in found.stdout
        assert "ignoring return" in found.stdout
