"""oneop doctor: what it finds, what it says about what is missing, and its exit status."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneop.cli import app, doctor


def run() -> tuple[int, str]:
    done = CliRunner().invoke(app, ["doctor"])
    return done.exit_code, done.output


def test_all_is_well() -> None:
    status, said = run()
    assert status == 0
    for what in ("Python", "torch", "C++ compiler", "onnxruntime", "openvino", "tensorrt", "nvcc"):
        assert any(line.startswith(what) for line in said.splitlines()), what
    assert "PyTorch: operators with kernels   yes" in said
    assert "TensorRT: build a library         not in this release" in said


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
