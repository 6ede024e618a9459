"""Where TensorRT's headers are looked for, and what is said where they are missing or too old."""

from pathlib import Path

import pytest

from oneop.errors import BuildError
from oneop.targets.tensorrt import headers


def folder_of(root: Path, version: str | None, indirect: bool = False) -> Path:
    root.mkdir(parents=True)
    (root / "NvInferRuntime.h").touch()
    if version is not None:
        parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)
        prefix, suffix = ("TRT_", "_ENTERPRISE") if indirect else ("NV_TENSORRT_", "")
        lines = [f"#define {prefix}{part}{suffix} {number} //!< as in the real one" for part, number in parts]
        (root / "NvInferVersion.h").write_text("\n".join(lines))
    return root


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TENSORRT_INCLUDE", "TENSORRT_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(headers, "_package_folders", lambda: ())
    monkeypatch.setattr(headers, "_system_folders", lambda: ())
    cuda = tmp_path / "cuda" / "include"
    cuda.mkdir(parents=True)
    (cuda / "cuda_runtime_api.h").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))


@pytest.mark.parametrize("indirect", [True, False])
def test_the_folder_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indirect: bool) -> None:
    folder = folder_of(tmp_path / "trt", "10.16.1", indirect)
    monkeypatch.setenv("TENSORRT_INCLUDE", str(folder))
    found = headers.find_headers()
    assert found == headers.Headers((folder, tmp_path / "cuda" / "include"), (10, 16, 1))


def test_the_root_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path / "trt" / "include", "11.1.0")
    monkeypatch.setenv("TENSORRT_ROOT", str(tmp_path / "trt"))
    assert headers.find_headers().folders[0] == folder


def test_packages_and_system_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path / "package" / "include", "10.0.1")
    monkeypatch.setattr(headers, "_package_folders", lambda: (folder.parent, folder))
    assert headers.find_headers().folders[0] == folder
    monkeypatch.setattr(headers, "_package_folders", lambda: ())
    monkeypatch.setattr(headers, "_system_folders", lambda: (folder,))
    assert headers.find_headers().folders == (tmp_path / "cuda" / "include",)  # the compiler searches the other itself


def test_none_at_all() -> None:
    with pytest.raises(BuildError) as caught:
        headers.find_headers()
    assert str(caught.value) == (
        "TensorRT's headers (NvInferRuntime.h) are not on this machine: not named by TENSORRT_INCLUDE or TENSORRT_ROOT,"
        " not in an installed package, not where the system keeps its headers. Install TensorRT 10 or newer, or take"
        " the folder `include` of the public repository NVIDIA/TensorRT and set TENSORRT_INCLUDE to it."
    )


def test_a_root_without_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORRT_ROOT", str(tmp_path))
    with pytest.raises(BuildError) as caught:
        headers.find_headers()
    assert str(caught.value) == (
        f"TENSORRT_ROOT is {tmp_path}, and there is no {tmp_path / 'include' / 'NvInferRuntime.h'}. Set it to the"
        " folder of TensorRT, whose include folder holds it."
    )


@pytest.mark.parametrize(("version", "shown"), [("8.6.1", "8.6.1"), (None, "before 8")])
def test_headers_that_are_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, shown: str
) -> None:
    folder = folder_of(tmp_path / "trt", version)
    monkeypatch.setenv("TENSORRT_INCLUDE", str(folder))
    with pytest.raises(BuildError) as caught:
        headers.find_headers()
    assert str(caught.value) == (
        f"the headers in {folder} are those of TensorRT {shown}; oneop's plugins need 10.0 or newer, where IPluginV3"
        " begins."
    )


def test_without_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORRT_INCLUDE", str(folder_of(tmp_path / "trt", "11.1.0")))
    monkeypatch.setattr(headers, "CUDA_HEADER", "no_such_header.h")
    with pytest.raises(BuildError) as caught:
        headers.find_headers()
    assert str(caught.value) == (
        "CUDA's headers (no_such_header.h), which TensorRT's need, are not on this machine. Install the CUDA toolkit"
        " and set CUDA_HOME to its folder."
    )
