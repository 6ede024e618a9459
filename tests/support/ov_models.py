"""Models of one node in OpenVINO, for the tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino

import oneop
from oneop import registry
from oneop.targets.openvino import compile_model, core
from support.ort_models import Array, model, operator

OPERATORS = Path(__file__).parents[1] / "openvino" / "operators"

__all__ = ["Array", "compiled", "model", "more", "operator", "read", "run"]


def more(base: str) -> oneop.Operator:
    registry.load_file(OPERATORS / "more.py")
    return registry.operators()[f"ovt::{base}"]


def read(made: onnx.ModelProto, op: oneop.Operator) -> openvino.Model:
    return core(op).read_model(made.SerializeToString())


def compiled(made: onnx.ModelProto, op: oneop.Operator, **config: Any) -> openvino.CompiledModel:
    return compile_model(made, op, **{"INFERENCE_PRECISION_HINT": "f32", **config})


def run(
    op: oneop.Operator, inputs: Sequence[Array], attributes: Mapping[str, Any] | None = None, **config: Any
) -> list[np.ndarray]:
    """The node's outputs in OpenVINO. There is no function in the model: only the kernel can give them."""
    return results(compiled(model(op, inputs, attributes), op, **config), inputs)


def results(loaded: openvino.CompiledModel, inputs: Sequence[Array]) -> list[np.ndarray]:
    request = loaded.create_infer_request()
    # Not `infer`: with one thread, OpenVINO loses the errors of any node there, its own too.
    request.start_async([np.ascontiguousarray(value).reshape(value.shape) for value in inputs if value is not None])
    request.wait()
    return [request.get_output_tensor(index).data.copy() for index in range(len(loaded.outputs))]
