"""What a person reads: about a kernel that nvcc refuses, about a machine without nvcc, about devices."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cuda_alone import twice
from typer.testing import CliRunner

import oneop
from oneop.cli import app
from oneop.errors import BuildError, DefinitionError
from oneop.kernels.building import build
from oneop.kernels.compilers import has_cuda_compiler
from oneop.kernels.generate import header_text
from oneop.kernels.library import kernel_library, write_headers
from oneop.targets.pytorch import native

NO_NVCC = (
    "no CUDA compiler was found (nvcc is not on PATH, and neither $CUDA_HOME/bin nor $CUDA_PATH/bin has it). Install"
    " one (the CUDA toolkit, https://developer.nvidia.com/cuda-downloads; its bin folder belongs on PATH), or set $NVCC"
    " to the one to use."
)
KERNEL = Path(__file__).with_name("twice.cu").read_text()
needs_nvcc = pytest.mark.skipif(
    not has_cuda_compiler(), reason="there is no nvcc ($NVCC, PATH and $CUDA_HOME/bin were looked at)"
)


@pytest.fixture
def without_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PATH as it is, but for the folders with an nvcc in them."""
    for name in ("NVCC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    folders = [item for item in os.environ["PATH"].split(os.pathsep) if item and not (Path(item) / "nvcc").exists()]
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("g++", "gcc", "c++filt", "as", "ld"):
        for folder in ("/usr/bin", "/usr/local/bin"):
            if (Path(folder) / name).exists() and not (tools / name).exists():
                (tools / name).symlink_to(Path(folder) / name)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tools), *folders]))
    return


def refused(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ONEOP_CUDA_ARCHITECTURES", "80")
    source = tmp_path / "kernel.cu"
    source.write_text(text)
    with pytest.raises(BuildError) as caught:
        build(kernel_library([replace(twice.kernel_spec("cuda"), sources=(source,))]))
    return str(caught.value)


@needs_nvcc
def test_an_error_names_the_file_and_line_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(tmp_path, KERNEL.replace("2 * a.x(i)", "broken * a.x(i)"), monkeypatch).splitlines()
    assert said[0].startswith("cannot build the kernels of kernel.cu: nvcc ")
    assert said[1] == f'{tmp_path}/kernel.cu:7: error: identifier "broken" is undefined'
    assert said[-1].startswith("Correct the source and run again. All that it printed: ")


@needs_nvcc
def test_a_kernel_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(tmp_path, KERNEL.replace("void twice(", "void twine("), monkeypatch).splitlines()
    assert (
        said[1]
        == "kernel.cu does not define `template <class T> void twice(const twice_args<T>& a, oneop::Context& ctx)`,"
        " outside of any namespace."
    )


@needs_nvcc
def test_a_kernel_that_returns_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = KERNEL.replace("void twice(", "int twice(").replace(">>>(a);\n", ">>>(a);\n  return 0;\n")
    assert (
        refused(tmp_path, text, monkeypatch).splitlines()[1]
        == "`twice` in kernel.cu has to return void; end it with ctx.fail(message) where it fails."
    )


@needs_nvcc
def test_parallel_for_in_a_cuda_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = KERNEL.replace("  if (a.n > 0)", "  ctx.parallel_for(0, a.n, [&](int64_t, int64_t) {});\n  if (a.n > 0)")
    said = refused(tmp_path, text, monkeypatch)
    assert (
        said.splitlines()[1]
        == "ctx.parallel_for runs on the CPU, which does not see the memory of CUDA tensors; in a .cu file launch a"
        " __global__ function on ctx.stream()."
    )
    assert f"at line 11 of {tmp_path}/kernel.cu" in said


@needs_nvcc
def test_a_function_of_the_cpu_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "static int helper() { static int calls = 0; return ++calls; }\n" + KERNEL.replace(
        "if (i < a.n)", "if (i < a.n && helper())"
    )
    said = refused(tmp_path, text, monkeypatch)
    assert f'{tmp_path}/kernel.cu:7: error: calling a __host__ function("helper()") from a __global__ function' in said


@needs_nvcc
def test_a_list_of_the_hosts_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its values are in the host's memory: they are a parameter of the kernel, as an oneop::Array."""
    text = KERNEL.replace("const twice_args<T> a) {", "const twice_args<T> a, oneop::List<double> l) {").replace(
        "2 * a.x(i)", "static_cast<T>(l[0]) * a.x(i)"
    )
    said = refused(tmp_path, text.replace(">>>(a)", ">>>(a, {})"), monkeypatch)
    assert "calling a __host__ function" in said


def test_without_nvcc_what_was_asked_for_by_name_fails(without_nvcc: None, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        oneop.build(twice, "onnxruntime", tmp_path, device="cuda")
    assert str(caught.value) == f'onnxruntime: device="cuda" asks for CUDA kernels, and {NO_NVCC}'
    with pytest.raises(BuildError) as caught:
        build(kernel_library([twice.kernel_spec("cuda")]))
    assert str(caught.value) == NO_NVCC


def test_without_nvcc_the_rest_is_built(
    without_nvcc: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONEOP_QUIET", raising=False)
    assert oneop.build(twice, "onnxruntime", tmp_path).exists()
    assert f"oneop: the CUDA kernels of cuda_alone::twice are left out: {NO_NVCC}\n" in capsys.readouterr().err


def test_without_nvcc_gpus_run_the_reference_and_a_line_says_so(
    without_nvcc: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONEOP_QUIET", raising=False)
    native._say_not_built.cache_clear()
    assert native.cuda_library(twice) is None
    assert native.cuda_library(twice) is None
    said = capsys.readouterr().err
    assert (
        said
        == f"oneop: the CUDA kernels of cuda_alone.py are not built, and its references run on the GPU: {NO_NVCC}\n"
    )


def test_gpus_of_amd_run_the_reference(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEOP_QUIET", raising=False)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    native._say_not_built.cache_clear()
    assert native.cuda_library(twice) is None
    assert "this PyTorch calls AMD's GPUs cuda, and nvcc compiles for NVIDIA's." in capsys.readouterr().err


def test_a_call_on_the_cpu_asks_nothing_of_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where it would hang."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\nsleep 600\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("NVCC", str(nvcc))
    assert twice(torch.ones(2)).tolist() == [2.0, 2.0]


def test_nvcc_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\nexit 1\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("NVCC", str(nvcc))
    with pytest.raises(BuildError) as caught:
        build(kernel_library([twice.kernel_spec("cuda")]))
    assert (
        str(caught.value)
        == f"$NVCC is `{nvcc}`, but `{nvcc} --version` fails, so it is no usable compiler. Set $NVCC to a CUDA"
        " compiler, or unset it to use the system's."
    )


def test_devices_that_cannot_be_built_for(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        oneop.build(twice, "onnxruntime", tmp_path, device="rocm")  # type: ignore[arg-type]
    assert str(caught.value) == "onnxruntime: device='rocm' is not known. Write one of 'cpu', 'cuda'."


def test_the_command_line_insists_too(without_nvcc: None, tmp_path: Path) -> None:
    arguments = ["build", str(Path(__file__).with_name("cuda_alone.py")), "--output", str(tmp_path), "--device", "cuda"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert 'onnxruntime: device="cuda" asks for CUDA kernels, and no CUDA compiler was found' in done.output


def test_cuda_kernels_that_an_operator_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twice, "kernels", twice.kernels[:1])
    with pytest.raises(BuildError) as caught:
        oneop.build(twice, "onnxruntime", tmp_path, device="cuda")
    assert (
        str(caught.value)
        == 'onnxruntime: device="cuda" asks for CUDA kernels, and cuda_alone::twice has none. Add a .cu file to its'
        " kernels=[...], or leave device= out."
    )


def test_where_an_operator_has_kernels() -> None:
    assert twice.devices == ("cpu", "cuda")
    assert [source.name for source in twice.kernel_spec().sources] == ["twice.cpp"]
    assert [source.name for source in twice.kernel_spec("cuda").sources] == ["twice.cu"]


def test_flags_that_are_no_list() -> None:
    with pytest.raises(DefinitionError) as caught:
        twice.gradient(lambda grad, x: 2 * grad, kernels=["twice.cu"], cuda_flags="--use_fast_math")
    assert (
        str(caught.value)
        == "cuda_alone::twice: cuda_flags is '--use_fast_math'; it is a list. Write cuda_flags=['--use_fast_math']."
    )


def test_one_header_serves_both_devices(tmp_path: Path) -> None:
    specs = [twice.kernel_spec("cpu"), twice.kernel_spec("cuda")]
    (path,) = write_headers(specs, tmp_path)
    assert path.read_text() == header_text(*specs)
    assert "// twice.cpp and twice.cu define\n//   template <class T>\n" in path.read_text()
    alone = header_text(specs[1])
    assert "// twice.cu defines\n" in alone
