"""Models of one node for the tests, and sessions on them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper

import oneop
from oneop import registry
from oneop.definition.dtypes import BY_NAME

OPERATORS = Path(__file__).parents[1] / "onnxruntime" / "operators"
RELEASE = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
"""Of ONNX Runtime: the tests know what each can do."""

Array = np.ndarray | None


def operator(base: str) -> oneop.Operator:
    registry.load_file(OPERATORS / "many.py")
    registry.load_file(OPERATORS / "plain.py")
    return registry.operators()[f"ortt::{base}"]


def model(
    op: oneop.Operator,
    inputs: Sequence[Array],
    attributes: Mapping[str, Any] | None = None,
    *,
    shapes: Sequence[Any] | None = None,
    outputs: Sequence[str] | None = None,
    copies: int = 1,
    metadata: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """A model of one node. An input that is None is absent; ``shapes`` replace the inputs' own (None: unknown rank)."""
    definition = op.definition
    names = ["" if value is None else f"x{index}" for index, value in enumerate(inputs)]
    given = [(name, value) for name, value in zip(names, inputs, strict=True) if value is not None]
    stated = [value.shape for _, value in given] if shapes is None else shapes
    results = [item.name for item in definition.outputs] if outputs is None else list(outputs)
    nodes = [
        helper.make_node(
            definition.onnx_name,
            names,
            [f"{name}{copy or ''}" if name else "" for name in results],
            name=f"the_node{copy or ''}",
            domain=definition.namespace,
            **(attributes or {}),
        )
        for copy in range(copies)
    ]
    graph = helper.make_graph(
        nodes,
        "tests",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape)
            for (name, value), shape in zip(given, stated, strict=True)
        ],
        [
            helper.make_tensor_value_info(f"{name}{copy or ''}", element_type(op, inputs, index), None)
            for copy in range(copies)
            for index, name in enumerate(results)
            if name
        ],
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(definition.namespace, 1)],
        ir_version=8,
    )
    helper.set_model_props(made, dict(metadata or {}))
    return made


def element_type(op: oneop.Operator, inputs: Sequence[Array], index: int) -> int:
    """Of an output: that of an input with the same dtype variable, or its only one."""
    definition = op.definition
    element = definition.outputs[index].element
    if element.is_fixed:
        return element.dtypes[0].onnx
    for position, value in enumerate(inputs):
        item = definition.inputs[min(position, len(definition.inputs) - 1)]
        if value is not None and item.element == element:
            return BY_NAME[str(value.dtype)].onnx
    return int(TensorProto.FLOAT)


def session(made: onnx.ModelProto, **options: Any) -> onnxruntime.InferenceSession:
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    for name, value in options.items():
        setattr(settings, name, value)
    return oneop.onnxruntime.session(made, sess_options=settings, providers=["CPUExecutionProvider"])


def feeds(inputs: Sequence[Array]) -> dict[str, np.ndarray]:
    return {f"x{index}": value for index, value in enumerate(inputs) if value is not None}


def run(op: oneop.Operator, inputs: Sequence[Array], attributes: Mapping[str, Any] | None = None) -> list[np.ndarray]:
    """The node's outputs in ONNX Runtime. There is no function in the model: only the kernel can give them."""
    return session(model(op, inputs, attributes)).run(None, feeds(inputs))


def reference(op: oneop.Operator, inputs: Sequence[Array], attributes: Mapping[str, Any]) -> list[np.ndarray]:
    """The oracle: the operator's own function, in float64."""
    tensors = [None if value is None else torch.from_numpy(value) for value in inputs]
    exact = [tensor.double() if tensor is not None and tensor.is_floating_point() else tensor for tensor in tensors]
    variadic = op.definition.inputs[-1].arity == "variadic"
    found = op.reference(*([exact] if variadic else exact), **attributes)
    results = found if isinstance(found, tuple) else (found,)
    return [result.numpy() for result in results]


def assert_right(op: oneop.Operator, inputs: Sequence[Array], **attributes: Any) -> None:
    actual, expected = run(op, inputs, attributes), reference(op, inputs, attributes)
    assert len(actual) == len(expected)
    for index, (mine, exact) in enumerate(zip(actual, expected, strict=True)):
        tolerance = 1e-12 if mine.dtype == np.float64 else 2e-5
        np.testing.assert_allclose(
            mine.astype(exact.dtype), exact, rtol=tolerance, atol=tolerance, err_msg=op.definition.outputs[index].name
        )
