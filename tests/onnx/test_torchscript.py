"""torch's older exporter, ``dynamo=False``: the same nodes, attributes, functions and numbers."""

import contextlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor

import oneop
from oneop.errors import ExportError
from support.onnx_checks import attributes, own_attributes


@oneop.op("older::linear")
def linear(
    x: Float[Tensor, "n k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float = 1.0,
    mode: Literal["plain", "double"] = "plain",
    shifts: list[int] = [1, 2],  # noqa: B006
    factors: list[float] = [],  # noqa: B006
    negate: bool = False,
    extra: float | None = None,
) -> Float[Tensor, "n m"]:
    y = alpha * (x @ weight.T) + sum(shifts) + sum(factors) + (0.0 if extra is None else extra)
    y = 2 * y if mode == "double" else y
    y = -y if negate else y
    return y if bias is None else y + bias


class Sorted(NamedTuple):
    values: Float[Tensor, "n m"]
    where: Int64[Tensor, "n"]


@oneop.op("older::together")
def together(xs: list[Float[Tensor, "n m"]]) -> Sorted:
    y = xs[0] * xs[-1]
    return Sorted(y, y.argmax(1))


@oneop.op("older::words")
def words(x: Float[Tensor, "n"], *, names: list[str] = ["a"]) -> Float[Tensor, "n"]:  # noqa: B006
    return x * len(names)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(5, 4, generator=generator))
        self.bias = torch.nn.Parameter(torch.randn(5, generator=generator))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = linear(x, self.weight, alpha=2.0, mode="double", shifts=[4], factors=[0.5], negate=True, extra=0.25).relu()
        z = linear(x, self.weight, self.bias)
        found = together([y, z])
        return found.values, found.where


EXPECTED = [
    {"alpha": 2.0, "mode": "double", "shifts": [4], "factors": [0.5], "negate": 1, "extra": 0.25},
    {"alpha": 1.0, "mode": "plain", "shifts": [1, 2], "factors": [], "negate": 0},
    {},
]
AXES = {"input_names": ["x"], "output_names": ["y", "where"], "dynamic_axes": {"x": {0: "batch"}}}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def export(path: Path, **options: Any) -> onnx.ModelProto:
    with quiet():
        oneop.export(Model().eval(), (torch.ones(3, 4),), path, dynamo=False, **AXES, **options)
    return onnx.load(path)


def require_same(path: Path) -> None:
    x = torch.randn(7, 4)
    found = onnxruntime.InferenceSession(path).run(None, {"x": x.numpy()})
    for mine, theirs in zip(found, Model()(x), strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fallback", ["function", "inline", "none"])
def test_nodes_attributes_and_numbers(tmp_path: Path, fallback: str) -> None:
    model = export(tmp_path / "model.onnx", fallback=fallback)
    onnx.checker.check_model(model, full_check=True)
    ours = [node for node in model.graph.node if node.domain == "older"]
    if fallback == "inline":
        assert not ours
    else:
        assert [node.op_type for node in ours] == ["Linear", "Linear", "Together"]
        assert [own_attributes(node) for node in ours] == EXPECTED
    assert sorted(function.name for function in model.functions) == (
        ["Linear", "Together"] if fallback == "function" else []
    )
    fingerprints = {item.key: item.value for item in model.metadata_props}
    assert fingerprints["oneop.fingerprint.older::linear"] == linear.definition.fingerprint
    assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", ""]
    if fallback != "none":
        require_same(tmp_path / "model.onnx")


def test_torchs_own_call_keeps_operators_and_attributes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with quiet():
        torch.onnx.export(Model().eval(), (torch.ones(3, 4),), str(path), dynamo=False, **AXES)
    ours = [node for node in onnx.load(path).graph.node if node.domain == "older"]
    assert [attributes(node) for node in ours] == EXPECTED


def test_an_operator_defined_after_the_exporter_was_imported_is_known_too(tmp_path: Path) -> None:
    @oneop.op("older::late")
    def late(x: Float[Tensor, "n"], *, by: float = 3.0) -> Float[Tensor, "n"]:
        return x + by

    class Late(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return late(x)

    with quiet():
        torch.onnx.export(Late(), (torch.ones(3),), str(tmp_path / "late.onnx"), dynamo=False)
    (node,) = onnx.load(tmp_path / "late.onnx").graph.node
    assert (node.domain, node.op_type, attributes(node)) == ("older", "Late", {"by": 3.0})


def test_the_older_exporter_alone_does_not_import_onnx() -> None:
    code = "import sys, oneop, torch.onnx; print('onnx' in sys.modules, 'onnx_ir' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False False"


class Words(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return words(x)


class Computed(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return linear(x, x, alpha=float(x.sum()))


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    def refusal(model: torch.nn.Module, x: Tensor, **options: Any) -> str:
        with pytest.raises(ExportError) as caught, quiet():
            oneop.export(model, (x,), tmp_path / "model.onnx", dynamo=False, **options)
        assert not list(tmp_path.iterdir())
        return str(caught.value)

    assert refusal(Words(), torch.ones(3)).startswith(
        "oneop.export: torch's older exporter cannot record an attribute that is a list of strings, which "
    )
    assert "older::words" in refusal(Words(), torch.ones(3))
    assert refusal(Model(), torch.ones(3, 4), dynamic_shapes=({0: "n"},)) == (
        "oneop.export: dynamo=False, torch's older exporter, takes no dynamic_shapes. Give dynamic_axes, with "
        "input_names and output_names, or leave dynamo=False out."
    )
