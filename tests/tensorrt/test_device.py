"""The library that TensorRT would load, CUDA kernels in it: compiled and linked here, driven as far as the kernels."""

import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import oneop
from oneop.errors import BuildError
from oneop.kernels.compilers import has_cuda_compiler
from oneop.kernels.spec import KernelSpec
from oneop.targets.onnxruntime.native import fingerprints_of
from oneop.targets.tensorrt.library import build_library
from support.tensorrt_host import FOLDER, needs_headers, node_of, operators, run

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
    assert answer.facts["creators"] == ["Scaled", "Shifted", "Repeated"]
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


def test_a_cuda_compiler_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC", str(tmp_path / "no_nvcc"))
    monkeypatch.setenv("TENSORRT_INCLUDE", str(tmp_path / "no_headers"))
    with pytest.raises(BuildError):
        oneop.build(FOLDER / "operators" / "small.py", "tensorrt", tmp_path / "out")
