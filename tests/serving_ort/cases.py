"""The model that the tests of this folder serve, and how it is run."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from oneop import Operator, registry

ROOT = Path(__file__).parents[2]
DEFINITION = ROOT / "examples" / "scaled_linear_cpp" / "scaled_linear.py"
NODE = ("demo", "ScaledLinear")
X = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)


@dataclass(frozen=True)
class Served:
    path: Path
    library: Path
    expected: np.ndarray


def operator() -> Operator:
    return next(item for item in registry.load_file(DEFINITION) if not item.definition.is_gradient)


def model() -> torch.nn.Module:
    scaled_linear = operator()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(4, 3)
            self.weight, self.bias = torch.nn.Parameter(torch.randn(4, 16) / 4), torch.nn.Parameter(torch.randn(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = scaled_linear(torch.relu(self.first(x)), self.weight, self.bias, alpha=2.0, beta=0.5)
            return self.last(torch.relu(y))

    torch.manual_seed(0)
    return Model().eval()


def run(path: Path, library: Path | None = None, x: np.ndarray = X, **settings: Any) -> np.ndarray:
    """With the library natively; without it by the function in the file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for name, value in settings.items():
        setattr(options, name, value)
    if library is not None:
        options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: x})[0]
    return found


def both(served: Served, path: Path, tolerance: float) -> None:
    """Natively and by the function, within ``tolerance`` of PyTorch, and as near to each other as ever."""
    native, function = run(path, served.library), run(path)
    np.testing.assert_allclose(native, served.expected, atol=tolerance, rtol=0)
    np.testing.assert_allclose(function, served.expected, atol=tolerance, rtol=0)
    np.testing.assert_allclose(native, function, atol=max(tolerance / 20, 1e-6), rtol=0)


def skip_or_fail(reason: str) -> None:
    """A part of this machine that is missing: named where people test, and a failure in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"CI is set, and {reason}")
    pytest.skip(reason)
