"""Model files for these tests: exported ones, and ones put together by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper

from oneop import registry
from support.onnx_checks import export_quietly

OPERATORS = Path(__file__).with_name("operators.py")
FEEDS = {
    "x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3),
    "shift": np.array([0.5, 1.0, 2.0], np.float32),
}


class Layers(torch.nn.Module):
    """Three calls that need two different bodies, and one of an operator whose reference calls another."""

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        affine, twice = (_operator(name) for name in ("affine", "twice"))
        y = affine(affine(x, alpha=2.0), shift, alpha=0.5, mode="other")
        return twice(affine(y, shift, power=3.0)[0], by=0.5)


def _operator(base: str) -> Any:
    return registry.operators()[f"insp::{base}"]


def load_operators() -> None:
    registry.load_file(OPERATORS)


def export(path: Path, fallback: str = "function", **options: Any) -> Path:
    load_operators()
    rows = torch.export.Dim("rows")
    example = (torch.ones(4, 3), torch.ones(3))
    export_quietly(
        Layers(), example, path, fallback=fallback, dynamic_shapes={"x": {0: rows}, "shift": None}, **options
    )
    return path


def run(path: Path, library: Path | None = None) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if library is not None:
        options.register_custom_ops_library(str(library))
    found: np.ndarray = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(
        None, FEEDS
    )[0]
    return found


def value(name: str, shape: Sequence[int | str] | None = (1,), dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(nodes: Sequence[onnx.NodeProto], name: str = "g", **parts: Any) -> onnx.GraphProto:
    inputs, outputs = parts.pop("inputs", [value("x")]), parts.pop("outputs", [value("y")])
    return helper.make_graph(list(nodes), name, inputs, outputs, **parts)


def model(main: onnx.GraphProto, domains: Sequence[str] = ("d",), **parts: Any) -> onnx.ModelProto:
    imports = [helper.make_opsetid("", 18), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(main, opset_imports=imports, ir_version=10, **parts)


def function(
    name: str, nodes: Sequence[onnx.NodeProto], domain: str = "d", inputs: Sequence[str] = ("a",), **parts: Any
) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    return helper.make_function(domain, name, list(inputs), ["b"], list(nodes), imports, **parts)


def node(
    kind: str, inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",), **attributes: Any
) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), list(outputs), **{"domain": "d", **attributes})


def saved(path: Path, proto: onnx.ModelProto) -> Path:
    path.write_bytes(proto.SerializeToString())
    return path


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def message(number: int, content: bytes) -> bytes:
    """A field with a length, as protobuf writes it."""
    return varint(number << 3 | 2) + varint(len(content)) + content
