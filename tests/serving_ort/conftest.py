"""What these tests serve: a model of the README's operator between two layers of torch, and its library."""

from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from serving_ort import cases

import oneop
from support import web_packages
from support.onnx_checks import export_quietly


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> cases.Served:
    folder = tmp_path_factory.mktemp("served")
    model, example = cases.model(), torch.from_numpy(cases.X)
    sizes = {"x": {0: torch.export.Dim("rows")}}
    export_quietly(model, (example,), folder / "model.onnx", dynamic_shapes=sizes)
    with torch.no_grad():
        expected: np.ndarray = model(example).numpy()
    library = oneop.build(cases.DEFINITION, "onnxruntime", folder)
    return cases.Served(folder / "model.onnx", library, expected)


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = web_packages.missing()
    if reason is not None:
        cases.skip_or_fail(reason)
    web_packages.FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{web_packages.FOLDER}.lock"):
        return web_packages.packages()
