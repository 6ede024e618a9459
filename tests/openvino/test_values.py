"""The gallery, the examples and every dtype in OpenVINO, against the references; the documents show the table."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from luong_attention import LuongAttention
from scaled_linear_c import scaled_linear as in_c
from scaled_linear_cpp import scaled_linear as in_cpp
from torch import Tensor

import oneop
from gallery.gallery import EXAMPLES, Example, every_attribute
from oneop.errors import ExportError
from oneop.targets.openvino import compile_model, core
from oneop.targets.openvino.running import MODEL_RUNNERS
from support.ov_models import results, run

DOCS = Path(__file__).parents[2] / "docs" / "openvino.md"
NATIVE = [example for example in EXAMPLES if example.op.has_kernels]


class Calls(torch.nn.Module):
    """A model that is one call; variadic inputs are spread over its own."""

    def __init__(self, example: Example) -> None:
        super().__init__()
        self.example = example

    def forward(self, *tensors: Tensor) -> Any:
        rest = iter(tensors)
        inputs = [
            [next(rest) for _ in item] if isinstance(item, list) else None if item is None else next(rest)
            for item in self.example.inputs()
        ]
        return self.example.op(*inputs, **self.example.attributes)


def tensors(example: Example, dtype: torch.dtype) -> tuple[Tensor, ...]:
    listed = [t for item in example.inputs() for t in (item if isinstance(item, list) else [item]) if t is not None]
    return tuple(t.to(dtype) if t.is_floating_point() else t for t in listed)


def cell(position: int, way: int) -> str:
    """Whether a runner runs an example: what the table says, and `test_gallery` shows."""
    return "yes" if EXAMPLES[position].op.has_kernels or not MODEL_RUNNERS[way].is_native else "no kernel"


@pytest.mark.parametrize("way", range(len(MODEL_RUNNERS)), ids=lambda way: MODEL_RUNNERS[way].title)
@pytest.mark.parametrize("position", range(len(EXAMPLES)), ids=lambda position: EXAMPLES[position].shape)
def test_gallery(position: int, way: int, tmp_path: Path) -> None:
    example, runner = EXAMPLES[position], MODEL_RUNNERS[way]
    path = tmp_path / "model.onnx"
    given = tensors(example, torch.float32)
    program = oneop.export(Calls(example), given, path, fallback=runner.fallback, verbose=False)
    if cell(position, way) == "no kernel":
        with pytest.raises(ExportError, match="has no kernels"):
            runner.open(path, [example.op], None)
        return
    call = runner.open(path, [example.op], None)
    names = [value.name for value in program.model.graph.inputs]
    found = call({name: t.numpy() for name, t in zip(names, given, strict=True)})
    exact = Calls(example)(*[t.double() if t.is_floating_point() else t for t in given])
    for mine, theirs in zip(found, exact if isinstance(exact, tuple) else (exact,), strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=2e-5, atol=2e-6)
        assert mine.dtype == ("float32" if theirs.is_floating_point() else str(theirs.dtype)[6:])


@pytest.mark.parametrize("example", NATIVE, ids=lambda example: example.shape)
def test_gallery_in_float64(example: Example) -> None:
    """OpenVINO computes float64 in float32; the results have the model's dtype."""
    inputs = [None if t is None else t.numpy() for item in example.inputs() for t in as_list(item)]
    found = run(example.op, inputs, example.attributes)
    exact = Calls(example)(*tensors(example, torch.float64))
    for mine, theirs in zip(found, exact if isinstance(exact, tuple) else (exact,), strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=2e-5, atol=2e-6)
        assert mine.dtype == theirs.detach().numpy().dtype


def as_list(item: Any) -> list[Any]:
    return item if isinstance(item, list) else [item]


def test_the_documents_show_the_table() -> None:
    head = "| operator | what it has | " + " | ".join(runner.title for runner in MODEL_RUNNERS) + " |"
    rows = [
        f"| `{example.name}` | {example.shape} | "
        + " | ".join(cell(position, way) for way in range(len(MODEL_RUNNERS)))
        + " |"
        for position, example in enumerate(EXAMPLES)
    ]
    assert "\n".join([head, "|---|---|---|---|", *rows]) in DOCS.read_text()


@pytest.mark.parametrize("fallback", ["function", "none"])
def test_a_file_of_either_kind_is_served(fallback: str, tmp_path: Path) -> None:
    example = next(example for example in EXAMPLES if example.op is every_attribute)
    path = tmp_path / "model.onnx"
    given = tensors(example, torch.float32)
    oneop.export(Calls(example), given, path, fallback=fallback, verbose=False)  # type: ignore[arg-type]
    loaded = core(every_attribute).read_model(path)
    assert "gallery::EveryAttribute" in {node.get_type_name() for node in loaded.get_ops()}
    outcome = results(compile_model(path), [given[0].numpy()])
    np.testing.assert_allclose(outcome[0], Calls(example)(*given).numpy(), rtol=1e-5)


@pytest.mark.parametrize("example", [in_c, in_cpp], ids=["c", "c++"])
@pytest.mark.parametrize("bias", [True, False])
def test_scaled_linear(example: ModuleType, bias: bool, tmp_path: Path) -> None:
    layer = example.ScaledLinear(4, 3, bias=bias, alpha=0.5, beta=2.0)
    x = torch.randn(5, 4)
    shapes = {"x": {0: torch.export.Dim("n")}}
    oneop.export(layer, (x,), tmp_path / "model.onnx", dynamic_shapes=shapes, verbose=False)
    for ops in (example.scaled_linear, example.__file__):
        loaded = compile_model(tmp_path / "model.onnx", ops)
        for rows in (5, 1):
            outcome = results(loaded, [x[:rows].numpy()])[0]
            np.testing.assert_allclose(outcome, layer(x[:rows]).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("score", LuongAttention.SCORES)
@pytest.mark.parametrize("with_lengths", [True, False])
def test_luong_attention(score: str, with_lengths: bool, tmp_path: Path) -> None:
    attention = LuongAttention(6, 6 if score == "dot" else 5, score).eval()
    inputs = [torch.randn(3, 6), torch.randn(3, 7, attention.encoder_size)]
    if with_lengths:
        inputs.append(torch.tensor([7, 1, 4]))
    oneop.export(attention, tuple(inputs), tmp_path / "model.onnx", verbose=False)
    loaded = compile_model(tmp_path / "model.onnx", INFERENCE_PRECISION_HINT="f32")
    found = results(loaded, [t.numpy() for t in inputs])
    for mine, theirs in zip(found, attention(*inputs), strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-5, atol=1e-6)
