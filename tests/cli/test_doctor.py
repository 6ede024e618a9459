"""oneop doctor: what it finds, what it says about what is missing, and its exit status."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneop.cli import app, doctor
from oneop.kernels import compilers


def run() -> tuple[int, str]:
    done = CliRunner().invoke(app, ["doctor"])
    return done.exit_code, done.output


def test_all_is_well() -> None:
    status, said = run()
    assert status == 0
    for what in ("Python", "torch", "C++ compiler", "onnxruntime", "openvino", "tensorrt", "nvcc", "GPU"):
        assert any(line.startswith(what) for line in said.splitlines()), what
    assert "PyTorch: operators with kernels   yes" in said


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    status, said = run()
    assert status == 1
    assert "PyTorch: operators in Python      yes" in said
    assert "PyTorch: operators with kernels   no: C++ compiler, C compiler" in said
    assert "C++ compiler: no C++ compiler was found" in said
    assert "apt-get install g++" in said


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "onnxruntime" else real(name))
    status, said = run()
    assert status == 0
    assert "ONNX Runtime: run it from Python  no: onnxruntime" in said
    assert "onnxruntime: pip install 'oneop[onnxruntime]'" in said


def test_a_torch_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "2.4.0" if name == "torch" else real(name))
    status, said = run()
    assert status == 1
    assert "2.4.0, and oneop needs <2.15,>=2.11" in said
    assert "torch: pip install 'torch<2.15,>=2.11'" in said


def test_a_cache_folder_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ONEOP_CACHE", str(tmp_path / "file"))
    status, said = run()
    assert status == 1
    assert "no: cache folder" in said
    assert "or set ONEOP_CACHE to another folder" in said


def test_nvcc_and_its_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("NVCC", str(nvcc))
    _, said = run()
    assert "nvcc 12.4" in said
    assert "CUDA kernels: build               yes" in said


def test_no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "_on_path", lambda language: None if language == "cuda" else "/usr/bin/c++")
    monkeypatch.delenv("NVCC", raising=False)
    _, said = run()
    assert "CUDA kernels: build               no: nvcc" in said
    assert "nvcc: no CUDA compiler was found (nvcc is not on PATH" in said


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_gpus", lambda: ["NVIDIA H100 (sm_90)", "NVIDIA L4 (sm_89)"])
    _, said = run()
    assert "NVIDIA H100 (sm_90), NVIDIA L4 (sm_89)" in said
    assert "CUDA kernels: run                 yes" in said


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> list[str]:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(doctor, "_gpus", nothing)
    _, said = run()
    assert "CUDA kernels: run                 no: GPU" in said
    assert "GPU: CUDA kernels need NVIDIA's driver and a GPU to run; they can be built without" in said


def test_a_driver_that_lists_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_gpus", list)
    assert "GPU: NVIDIA's driver is here and lists no GPU; `nvidia-smi` says why" in run()[1]
