"""Files that TensorRT's parser reads: exported with fallback="none", taken by ONNX Runtime as well."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import oneop
from oneop.errors import ExportError
from oneop.registry import load_file
from support.onnx_checks import attributes, export_quietly
from support.tensorrt_host import node_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "scaled_linear_cpp" / "scaled_linear.py"
X = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]])


@oneop.op("trtx::affine")
def affine(
    x: Float[Tensor, "n k"],
    shift: Float[Tensor, "k"] | None = None,
    factor: Float[Tensor, "k"] | None = None,
    *,
    alpha: float = 1.0,
    name: str = "a",
    sizes: list[int] | None = None,
) -> Float[Tensor, "n k"]:
    y = alpha * (x if factor is None else x * factor)
    return y if shift is None else y + shift


ONE = torch.ones(3)
CALLS: list[tuple[tuple[Tensor | None, ...], dict[str, Any]]] = [
    ((X, None, ONE + ONE), {"alpha": 2.0}),  # absent in the middle
    ((X, None, None), {"name": "", "sizes": [1, -2]}),
    ((X, ONE, None), {"alpha": 0.5}),
]


class Calls(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(affine(x, *given[1:], **values) for given, values in CALLS)


def own_nodes(path: Path, domain: str) -> list[onnx.NodeProto]:
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    return [node for node in proto.graph.node if node.domain == domain]


def test_nodes_say_which_plugin_they_are_and_what_they_have(tmp_path: Path) -> None:
    export_quietly(Calls().eval(), (X,), tmp_path / "calls.onnx", fallback="none")
    found = own_nodes(tmp_path / "calls.onnx", "trtx")
    plugin = {"plugin_version": "1", "plugin_namespace": "", "oneop_fingerprint": affine.definition.fingerprint}
    assert [attributes(node) for node in found] == [
        {"alpha": 2.0, "name": "a", **plugin, "oneop_inputs": "1 0 1"},
        {"alpha": 1.0, "name": "", "sizes": [1, -2], **plugin, "oneop_inputs": "1 0 0"},
        {"alpha": 0.5, "name": "a", **plugin, "oneop_inputs": "1 1 0"},
    ]
    assert [[bool(name) for name in node.input] for node in found] == [[True, False, True], [True], [True, True]]
    for node, (given, values) in zip(found, CALLS, strict=True):
        assert list(node.attribute) == list(node_of(affine, given, values).attributes)  # what the test host is given


@pytest.mark.parametrize("dynamo", [True, False])
def test_onnx_runtime_takes_the_same_file(tmp_path: Path, dynamo: bool) -> None:
    operator = load_file(EXAMPLE)[0]

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return operator(x, torch.ones(2, 3), alpha=3.0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_quietly(Model().eval(), (X,), tmp_path / "model.onnx", fallback="none", dynamo=dynamo)
    (node,) = own_nodes(tmp_path / "model.onnx", "demo")
    assert len(node.input) == 2
    session = oneop.onnxruntime.session(tmp_path / "model.onnx", operator)
    (found,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    np.testing.assert_allclose(found, Model()(X).numpy(), rtol=1e-6)


@oneop.op("trtx::counted")
def counted(x: Float[Tensor, "n"], *, count: int = 1, counts: list[int] = [1]) -> Float[Tensor, "n"]:  # noqa: B006
    return x * count * len(counts)


@oneop.op("trtx::versioned")
def versioned(x: Float[Tensor, "n"], *, plugin_version: str = "2") -> Float[Tensor, "n"]:
    return x + len(plugin_version)


@pytest.mark.parametrize("values", [{"count": 2**31}, {"counts": [1, -(2**31) - 1]}])
def test_an_int_that_tensorrt_would_cut_off_is_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return counted(x, **values)

    name, value = ("count", 2**31) if "count" in values else ("counts", -(2**31) - 1)
    with pytest.raises(ExportError) as caught:
        export_quietly(Model().eval(), (torch.ones(3),), tmp_path / "model.onnx", fallback="none")
    assert str(caught.value) == (
        f'trtx::counted: attribute `{name}` holds {value}, and TensorRT\'s ONNX parser, which fallback="none" is for,'
        ' keeps the last 32 bits of an integer. Export with a smaller value, or with fallback="function".'
    )
    export_quietly(Model().eval(), (torch.ones(3),), tmp_path / "model.onnx")


def test_an_attribute_that_means_something_to_tensorrt_is_refused(tmp_path: Path) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return versioned(x)

    with pytest.raises(ExportError) as caught:
        export_quietly(Model().eval(), (torch.ones(3),), tmp_path / "model.onnx", fallback="none")
    assert str(caught.value) == (
        'trtx::versioned: attribute `plugin_version` means something else to TensorRT, which fallback="none" is for.'
        ' Give it another name, or export with fallback="function".'
    )
