"""The library that TensorRT would load, CUDA kernels in it: compiled and linked here, driven as far as the kernels."""

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import oneop
from oneop.errors import BuildError
from oneop.kernels.compilers import has_cuda_compiler
from oneop.kernels.spec import KernelSpec
from oneop.targets.onnxruntime.native import fingerprints_of
from oneop.targets.tensorrt.library import build_library
from support.tensorrt_host import FOLDER, Answer, needs_headers, node_of, operators, pretended_library, run

needs_nvcc = pytest.mark.skipif(not has_cuda_compiler(), reason="there is no nvcc: install the CUDA toolkit")

X = np.array([1.0, 2.0, 3.0], np.float32)


def one_architecture() -> list[KernelSpec]:
    specs = [item.kernel_spec("cuda") for item in operators("small").values()]
    options = dataclasses.replace(specs[0].options, cuda_architectures=("80",))
    return [
        dataclasses.replace(spec, options=dataclasses.replace(options, dtypes=spec.options.dtypes)) for spec in specs
    ]


@needs_headers
@needs_nvcc
def test_the_library_is_built_and_answers_tensorrts_questions(tmp_path: Path) -> None:
    path = build_library(one_architecture(), tmp_path / "out", workspace=4096)
    assert path == (tmp_path / "out" / "libsmall_tensorrt.so").resolve()
    assert {item.name for item in path.parent.iterdir()} == {
        "libsmall_tensorrt.so",
        "oneop_tensorrt.cpp",
        "oneop_tensorrt.h",
        "small_plugin.cpp",
    }
    node = node_of(operators("small")["shifted"], [X], {"by": 0.5, "times": 3})
    answer = run(path, node, [X], tmp_path, dynamic=True, stop="configure")
    assert answer.error == "", answer.log
    assert answer.facts["creators"] == ["Scaled", "Shifted", "Repeated", "Kept"]
    assert answer.facts["formats"] == [[0, 1], [0]]  # kFLOAT and kHALF
    assert answer.facts["workspace"] == 4096
    exported = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in exported.splitlines()} == {
        "getCreators",
        "oneop_library_v1",
        "setLoggerFinder",
    }


@needs_headers
@needs_nvcc
def test_another_runtime_refuses_it_by_name(tmp_path: Path) -> None:
    path = build_library(one_architecture(), tmp_path / "out", workspace=4096)
    with pytest.raises(BuildError) as caught:
        fingerprints_of(path)  # what oneop.onnxruntime.session asks first
    assert str(caught.value) == (
        f"{path} is a library for TensorRT, not for ONNX Runtime. Build one with"
        ' oneop.build(..., "onnxruntime", folder).'
    )


@needs_headers
@needs_nvcc
def test_without_a_gpu_a_run_fails_with_a_message(tmp_path: Path) -> None:
    """The kernel is chosen and launched; what CUDA says of that is reported."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU, and the host's memory is the CPU's")
    path = build_library(one_architecture(), tmp_path / "out", workspace=4096)
    answer = run(path, node_of(operators("small")["scaled"], [X], {"alpha": 2.0}), [X], tmp_path)
    assert answer.error == "enqueue failed"
    assert len(answer.log) == 1
    assert answer.log[0].startswith("error: trts::scaled: CUDA reports cudaError")


# ---- the code for a GPU, with CUDA's runtime pretended and the kernels emulated


def pretended(name: str, x: np.ndarray, folder: Path, values: dict[str, Any], **options: Any) -> Answer:
    return run(pretended_library("small"), node_of(operators("small")[name], [x], values), [x], folder, **options)


@needs_headers
@pytest.mark.parametrize("allocator", [True, False])
@pytest.mark.parametrize("size", [3, 1000])
@pytest.mark.parametrize(("name", "values"), [("scaled", {"alpha": 2.0}), ("repeated", {"times": 3}), ("kept", {})])
def test_it_runs_on_a_pretended_gpu(
    tmp_path: Path, name: str, values: dict[str, Any], size: int, allocator: bool
) -> None:
    """With 1024 bytes of workspace, 1000 numbers of scratch memory come from the allocator, or from CUDA."""
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    answer = pretended(name, x, tmp_path, values, allocator=allocator)
    assert answer.error == "", answer.log
    np.testing.assert_allclose(answer.outputs[0], operators("small")[name].reference(torch.from_numpy(x), **values))
    assert (answer.facts["allocations"] > 0) == (allocator and size > 3 and name != "scaled")


@needs_headers
@pytest.mark.parametrize(
    ("function", "name", "message"),
    [
        ("cudaMallocAsync", "repeated", "out of memory (scratch): 4096 bytes"),
        ("cudaMemcpyAsync", "kept", "a size could not be written to the device: invalid argument"),
        ("cudaGetLastError", "scaled", "the kernel could not be launched: invalid configuration argument"),
    ],
)
def test_what_cuda_refuses_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, name: str, message: str
) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAILS", function)
    answer = pretended(name, np.ones(1000, np.float32), tmp_path, {}, allocator=False)
    assert answer.error == "enqueue failed"
    assert answer.log == [f"error: trts::{name}: {message}"]


@needs_headers
def test_a_cuda_compiler_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC", str(tmp_path / "no_nvcc"))
    with pytest.raises(BuildError) as caught:
        oneop.build(FOLDER / "operators" / "small.py", "tensorrt", tmp_path / "out")
    assert "CUDA compiler" in str(caught.value)
    assert str(tmp_path / "no_nvcc") in str(caught.value)
    assert (tmp_path / "out" / "small_plugin.cpp").is_file()
