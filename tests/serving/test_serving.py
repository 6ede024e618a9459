"""A C++ program runs a package of AOTInductor with the kernels of our operators, and no Python."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from serving.operators import doubled

import oneop
from oneop.errors import BuildError

HERE = Path(__file__).resolve().parent
LIBRARY = "liboperators_pytorch.so"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Everything that takes a compiler, made once for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "serving"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            unfinished.mkdir(exist_ok=True)
            subprocess.run([sys.executable, HERE / "prepare.py", unfinished], check=True)
            unfinished.rename(folder)
    return folder


def serve(made: Path, model: str, inputs: str, outputs: Path, *libraries: Path) -> subprocess.CompletedProcess[str]:
    command = [made / "serve", made / model, made / inputs, outputs, *libraries]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_results_are_those_of_eager_and_the_kernels_ran(made, tmp_path):
    ran = serve(made, "model.pt2", "inputs.pt", tmp_path / "out.pt", made / LIBRARY)
    assert ran.returncode == 0, ran.stderr
    *values, runs = torch.load(tmp_path / "out.pt", weights_only=False)
    *expected, _ = torch.load(made / "expected.pt")
    torch.testing.assert_close(values, [t.detach() for t in expected])
    assert values[0].shape == (5, 5)
    assert runs == 2  # `scaled` was called twice, and counts in its C++ kernel


@pytest.mark.skipif(sys.platform != "linux", reason="ldd reads ELF files")
def test_neither_the_program_nor_the_library_links_python(made):
    for file in ("serve", LIBRARY):
        linked = subprocess.run(["ldd", made / file], capture_output=True, text=True, check=True).stdout
        assert "libtorch_cpu" in linked
        assert "python" not in "\n".join(line.split("=>")[0] for line in linked.splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="nm reads ELF files")
def test_the_library_exports_its_table_alone(made):
    table = subprocess.run(["nm", "-D", "--defined-only", made / LIBRARY], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in table.stdout.splitlines()] == ["oneop_library_v1"]


def test_without_the_library_the_operator_is_named(made, tmp_path):
    ran = serve(made, "model.pt2", "inputs.pt", tmp_path / "out.pt")
    assert (ran.returncode, ran.stderr) == (1, "failed: Could not find schema for serving::scaled.\n")


def failed(text):
    """What the program says last. Before 2.13 AOTInductor goes on without the result, and fails over that."""
    release = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
    return f"failed: {text if release >= (2, 13) else 'Cannot access storage of UndefinedTensorImpl'}"


def test_a_failure_in_a_kernel_reaches_the_program(made, tmp_path):
    ran = serve(made, "model.pt2", "not_numbers.pt", tmp_path / "out.pt", made / LIBRARY)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == failed("serving::scaled: x begins with a NaN")


def test_a_dtype_without_a_kernel_is_refused(made, tmp_path):
    ran = serve(made, "double.pt2", "pair.pt", tmp_path / "out.pt", made / LIBRARY)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == failed(
        "serving::scaled: there is no kernel for these dtypes (`x` is float64 on cpu, `weight` is float64 on"
        " cpu), and a program without Python has no reference to run instead. Convert the inputs to what a kernel"
        " takes, or build the library with kernels for these."
    )


def test_an_operator_without_kernels_is_decomposed_before(made, tmp_path):
    ran = serve(made, "doubled.pt2", "x.pt", tmp_path / "out.pt")
    assert ran.returncode == 0, ran.stderr
    torch.testing.assert_close(torch.load(tmp_path / "out.pt", weights_only=False), [2 * torch.load(made / "x.pt")[0]])


def test_a_second_library_of_the_same_operators_says_so_and_changes_nothing(made, tmp_path):
    second = tmp_path / "second.so"
    shutil.copyfile(made / LIBRARY, second)
    ran = serve(made, "model.pt2", "inputs.pt", tmp_path / "out.pt", made / LIBRARY, second)
    assert ran.returncode == 0
    assert ran.stderr.splitlines()[0] == (
        "oneop: serving::scaled is registered already, from Python or from another library, and stays as it is. Load"
        " one library for each operator."
    )
    assert torch.load(tmp_path / "out.pt", weights_only=False)[-1] == 2


PLAIN_PYTHON = """
import sys, torch
library, model, inputs, expected = sys.argv[1:]
torch.ops.load_library(library)
values = torch.export.load(model).module()(*torch.load(inputs))
assert "oneop" not in sys.modules
torch.testing.assert_close([*values[:-1]], torch.load(expected)[:-1])
assert values[-1] == 2
(x,) = torch.load(inputs)
try:
    torch.ops.serving.kept(x[0].requires_grad_()).sum().backward()
except RuntimeError as error:
    print(error)
"""


def test_python_without_oneop_takes_the_library_too(made):
    files = [made / name for name in (LIBRARY, "model_exported.pt2", "inputs.pt", "expected.pt")]
    ran = subprocess.run([sys.executable, "-c", PLAIN_PYTHON, *files], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == (
        "serving::kept has no gradient here: a library that serves without Python holds what inference needs. Call it"
        " under a torch::NoGradGuard, or train in Python."
    )


def test_operators_without_kernels_need_no_library(tmp_path):
    with pytest.raises(BuildError, match="pytorch: no kernel to build in serving::doubled"):
        oneop.build(doubled, "pytorch", tmp_path)
