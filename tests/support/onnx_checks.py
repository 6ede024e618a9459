"""The oracle of the ONNX tests: PyTorch's eager result against every way to run the exported file."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx.reference import ReferenceEvaluator

import oneop
from oneop.targets.plugins import NODE_ATTRIBUTES

# A few roundings of the dtype; a sum over some ten elements has that many. float64 models differ by the 32 bits in
# which ONNX
# keeps float attributes only where the test says so.
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 5e-3}


@dataclass
class Exported:
    """A file that was checked and run, and its contents."""

    path: Path
    proto: onnx.ModelProto

    def nodes(self, operator: oneop.Operator) -> list[onnx.NodeProto]:
        definition = operator.definition
        return [
            node
            for node in self.proto.graph.node
            if (node.domain, node.op_type) == (definition.namespace, definition.onnx_name)
        ]


def export_and_compare(
    model: torch.nn.Module,
    examples: Sequence[tuple[torch.Tensor, ...]],
    folder: Path,
    *,
    tolerance: float | None = None,
    dynamic_shapes: Any = None,
    reference_evaluator: bool = True,
    fallbacks: Sequence[str] = ("function",),
    **options: Any,
) -> Exported:
    """Exports with the first example, in each form, and compares on every example. Returns the last form."""
    model = model.eval()
    for fallback in fallbacks:
        path = folder / f"{fallback}.onnx"
        export_quietly(model, examples[0], path, dynamic_shapes=dynamic_shapes, fallback=fallback, **options)
        proto = onnx.load(path)
        onnx.checker.check_model(proto, full_check=True)
        for example in examples:
            wanted = eager(model, example)
            compare(wanted, run_onnxruntime(path, example), tolerance, f"onnxruntime, {fallback}")
            if reference_evaluator:
                compare(wanted, run_reference(proto, example), tolerance, f"ReferenceEvaluator, {fallback}")
        if fallback == "inline":
            assert not proto.functions
    return Exported(path, proto)


def export_quietly(model: torch.nn.Module, args: tuple[Any, ...], path: Path, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Exporting a model while it is in training mode")
        warnings.filterwarnings("ignore", message="# The axis name")
        return oneop.export(model, args, path, verbose=False, **options)


def eager(model: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    with torch.no_grad():
        found = model(*example)
    return [value.numpy() for value in (found if isinstance(found, tuple) else (found,))]


def run_onnxruntime(path: Path, example: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    found: list[np.ndarray] = session.run(
        None, {name: value.numpy() for name, value in zip(names, example, strict=True)}
    )
    return found


def run_reference(proto: onnx.ModelProto, example: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    names = [item.name for item in proto.graph.input]
    found: list[np.ndarray] = ReferenceEvaluator(proto).run(
        None, {name: value.numpy() for name, value in zip(names, example, strict=True)}
    )
    return found


def compare(wanted: list[np.ndarray], found: list[np.ndarray], tolerance: float | None, what: str) -> None:
    assert len(wanted) == len(found), what
    for ours, theirs in zip(wanted, found, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), what
        close = TOLERANCE.get(ours.dtype.name, 0.0) if tolerance is None else tolerance
        np.testing.assert_allclose(theirs, ours, rtol=close, atol=close, err_msg=what)


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes as Python has them; strings decoded."""
    found = {}
    for item in node.attribute:
        value = onnx.helper.get_attribute_value(item)
        if isinstance(value, bytes):
            value = value.decode()
        elif item.type == onnx.AttributeProto.STRINGS:
            value = [entry.decode() for entry in value]
        elif item.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            value = list(value)
        found[item.name] = value
    return found


def own_attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Those that the operator's definition names: without what fallback="none" adds for TensorRT."""
    return {name: value for name, value in attributes(node).items() if name not in NODE_ATTRIBUTES}


def require_attributes(node: onnx.NodeProto, wanted: dict[str, Any]) -> None:
    """Each attribute with its value and no other; floats as 32 bits keep them."""
    found = attributes(node)
    assert sorted(found) == sorted(wanted)
    for name, value in wanted.items():
        assert found[name] == in_32_bits(value), name


def in_32_bits(value: Any) -> Any:
    if isinstance(value, float):
        return float(np.float32(value))
    if isinstance(value, list) and value and isinstance(value[0], float):
        return [float(np.float32(entry)) for entry in value]
    return value
