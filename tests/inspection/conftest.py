"""Files and libraries that several of these tests look at."""

from pathlib import Path

import pytest
from inspection import files

import oneop


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.export(tmp_path_factory.mktemp("exported") / "layers.onnx")


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.export(tmp_path_factory.mktemp("bare") / "bare.onnx", "none")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return oneop.build(files.OPERATORS, "onnxruntime", tmp_path_factory.mktemp("built"))
