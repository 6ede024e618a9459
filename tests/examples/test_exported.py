"""The examples in ONNX Runtime: from the file alone, and with their kernels."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from luong_attention import LuongAttention
from scaled_linear_c import scaled_linear as in_c
from scaled_linear_cpp import scaled_linear as in_cpp
from scaled_linear_python import scaled_linear as in_python
from torch import nn

import oneop

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(path: Path, inputs: tuple[torch.Tensor, ...], libraries: list[Path]) -> list[np.ndarray]:
    """What plain ONNX Runtime makes of the inputs."""
    options = onnxruntime.SessionOptions()
    for library in libraries:
        options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    assert len(names) == len(inputs)
    return session.run(None, {name: value.numpy() for name, value in zip(names, inputs, strict=True)})


def check(model: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path, library: Path | None) -> None:
    """Both ways agree with PyTorch on the inputs, and on more of them than the model was exported with."""
    batch = torch.export.Dim("batch")
    shapes = tuple({0: batch} for _ in inputs)
    oneop.export(model.eval(), inputs, path, dynamic_shapes=shapes, verbose=False)
    for given in (inputs, tuple(torch.cat([tensor, tensor.flip(0)]) for tensor in inputs)):
        with torch.no_grad():
            expected = model(*given)
        expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
        for libraries in ([], [library] if library else []):
            found = run(path, given, libraries)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(torch.from_numpy(one), other)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    ("way", "folder"),
    [
        pytest.param(in_python, None, id="python"),
        pytest.param(in_cpp, "scaled_linear_cpp", id="c++"),
        pytest.param(in_c, "scaled_linear_c", id="c"),
    ],
)
def test_scaled_linear(way: object, folder: str | None, with_bias: bool, tmp_path: Path) -> None:
    layer = way.ScaledLinear(5, 4, bias=with_bias, alpha=2.0, beta=0.5)
    library = oneop.build(EXAMPLES / folder / "scaled_linear.py", "onnxruntime", tmp_path) if folder else None
    check(layer, (torch.randn(3, 5),), tmp_path / "layer.onnx", library)


@pytest.mark.parametrize("score", LuongAttention.SCORES)
def test_luong_attention(score: str, tmp_path: Path) -> None:
    library = oneop.build(EXAMPLES / "luong_attention.py", "onnxruntime", tmp_path)
    attention = LuongAttention(4, score=score)
    check(attention, (torch.randn(3, 4), torch.randn(3, 6, 4)), tmp_path / "attention.onnx", library)


def test_luong_attention_with_lengths(tmp_path: Path) -> None:
    library = oneop.build(EXAMPLES / "luong_attention.py", "onnxruntime", tmp_path)
    inputs = (torch.randn(3, 4), torch.randn(3, 6, 4), torch.tensor([6, 1, 3]))
    check(LuongAttention(4), inputs, tmp_path / "attention.onnx", library)
