"""Files and libraries that several of these tests look at."""

from pathlib import Path

import pytest
from filelock import FileLock
from inspection import files

import oneop


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder with the model in two forms, made once for all workers: an export takes seconds."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "inspection_exports"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            unfinished.mkdir(exist_ok=True)
            files.export(unfinished / "layers.onnx")
            files.export(unfinished / "bare.onnx", "none")
            unfinished.rename(folder)
    files.load_operators()
    return folder


@pytest.fixture(scope="session")
def exported(exports: Path) -> Path:
    return exports / "layers.onnx"


@pytest.fixture(scope="session")
def bare(exports: Path) -> Path:
    return exports / "bare.onnx"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return oneop.build(files.OPERATORS, "onnxruntime", tmp_path_factory.mktemp("built"))
