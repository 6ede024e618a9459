"""What other tools make of a file with our operators: it still runs, natively and by function, or they say why not."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, version_converter
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16
from serving_ort import cases
from serving_ort.cases import Served, both, run

from oneop.inspection.rewriting import add_functions, inline
from support.onnx_checks import export_quietly

LEVELS = {
    name: getattr(onnxruntime.GraphOptimizationLevel, name)
    for name in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL")
    if hasattr(onnxruntime.GraphOptimizationLevel, name)  # LAYOUT came with 1.22
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The tools warn at length about models that were not prepared, and leave files in the folder that they run in."""
    monkeypatch.chdir(tmp_path)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def nodes(path: Path) -> list[onnx.NodeProto]:
    """Our nodes, with the attributes that they must not lose."""
    found = [node for node in onnx.load(path).graph.node if (node.domain, node.op_type) == cases.NODE]
    for node in found:
        assert {item.name: item.f for item in node.attribute} == {"alpha": 2.0, "beta": 0.5}
    return found


def functions(path: Path) -> list[str]:
    return [function.name for function in onnx.load(path).functions]


# ONNX Runtime's own optimizer, whose result is saved.


@pytest.mark.parametrize("level", LEVELS)
def test_optimized_natively(served: Served, tmp_path: Path, level: str) -> None:
    """The node stays, and ONNX Runtime drops the function, which `oneop inspect --add-functions` gives back."""
    path = tmp_path / "optimized.onnx"
    settings = {"graph_optimization_level": LEVELS[level], "optimized_model_filepath": str(path)}
    np.testing.assert_allclose(run(served.path, served.library, **settings), served.expected, rtol=1e-5, atol=1e-6)
    assert len(nodes(path)) == 1
    assert not functions(path)
    np.testing.assert_allclose(run(path, served.library), served.expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(Exception, match="ScaledLinear"):
        run(path)
    if level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        add_functions(path, [cases.DEFINITION], path)
        assert len(nodes(path)) == 1
        both(served, path, 1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_optimized_by_function(served: Served, tmp_path: Path, level: str) -> None:
    """The function was taken apart before, so that the result needs neither function nor library."""
    path = tmp_path / "optimized.onnx"
    run(served.path, graph_optimization_level=LEVELS[level], optimized_model_filepath=str(path))
    assert not nodes(path)
    both(served, path, 1e-5)


# Quantisation. Our node keeps its floats; what is around it becomes integers.


class Examples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self.left = iter([{"x": cases.X}, {"x": -cases.X}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.left, None)


@pytest.mark.parametrize("weights", [QuantType.QUInt8, QuantType.QInt8])
def test_dynamically_quantized(served: Served, tmp_path: Path, weights: QuantType) -> None:
    path = tmp_path / "quantized.onnx"
    quantize_dynamic(served.path, path, weight_type=weights)
    assert "MatMulInteger" in {node.op_type for node in onnx.load(path).graph.node}
    assert len(nodes(path)) == 1
    assert functions(path) == ["ScaledLinear"]
    both(served, path, 0.05)


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_statically_quantized(served: Served, tmp_path: Path, form: QuantFormat) -> None:
    path = tmp_path / "quantized.onnx"
    quantize_static(served.path, path, Examples(), quant_format=form)
    assert "QuantizeLinear" in {node.op_type for node in onnx.load(path).graph.node}
    assert len(nodes(path)) == 1
    both(served, path, 0.05)


def test_prepared_for_quantization(served: Served, tmp_path: Path) -> None:
    """Its shape inference asks the operator's schema; its optimizer runs the file without a library, and inlines it."""
    quant_pre_process(served.path, tmp_path / "inlined.onnx")
    assert not nodes(tmp_path / "inlined.onnx")
    quant_pre_process(served.path, tmp_path / "kept.onnx", skip_optimization=True)
    assert len(nodes(tmp_path / "kept.onnx")) == 1
    for name in ("inlined", "kept"):
        quantize_static(tmp_path / f"{name}.onnx", tmp_path / "quantized.onnx", Examples())
        both(served, tmp_path / "quantized.onnx", 0.05)


# float16.


def halved(path: Path, new: Path, **options: Any) -> Path:
    onnx.save(convert_float_to_float16(onnx.load(path), **options), new)
    return new


def test_mixed_precision(served: Served, tmp_path: Path) -> None:
    """The operator stays in float32, between casts: right in both ways."""
    blocked = [*DEFAULT_OP_BLOCK_LIST, "ScaledLinear"]
    path = halved(served.path, tmp_path / "half.onnx", keep_io_types=True, op_block_list=blocked)
    assert TensorProto.FLOAT16 in {item.data_type for item in onnx.load(path).graph.initializer}
    assert len(nodes(path)) == 1
    both(served, path, 5e-3)


def test_float16_throughout(served: Served, tmp_path: Path) -> None:
    """Without the list, the node takes float16: a kernel that has it runs, and the function, traced for float32, is
    refused when the file is loaded.
    """
    path = halved(served.path, tmp_path / "half.onnx", keep_io_types=True)
    assert len(nodes(path)) == 1
    np.testing.assert_allclose(run(path, served.library), served.expected, atol=5e-3)
    with pytest.raises(Exception, match=r"ScaledLinear.*inconsistent type"):
        run(path)
    # Inlined first, there is nothing that the converter does not know.
    inline(served.path, tmp_path / "inlined.onnx")
    exported = tmp_path / "exported.onnx"
    export_quietly(cases.model(), (torch.from_numpy(cases.X),), exported, fallback="inline")
    for inlined in (tmp_path / "inlined.onnx", exported):
        halved(inlined, path, keep_io_types=True)
        np.testing.assert_allclose(run(path), served.expected, atol=5e-3)


# Shapes.


@pytest.mark.parametrize(
    "options", [{}, {"data_prop": True}, {"strict_mode": True, "data_prop": True, "check_type": True}]
)
def test_shape_inference(served: Served, tmp_path: Path, options: dict[str, bool]) -> None:
    """onnx asks the operator's own schema, which knows the definition: here, of a file that says nothing itself."""
    proto = onnx.load(served.path)
    del proto.graph.value_info[:]
    found = onnx.shape_inference.infer_shapes(proto, **options)
    stated = {
        item.name: [dim.dim_value or dim.dim_param for dim in item.type.tensor_type.shape.dim]
        for item in found.graph.value_info
    }
    (node,) = (node for node in proto.graph.node if node.op_type == "ScaledLinear")
    assert stated[node.output[0]] == ["rows", 4]
    assert len(stated) == 4
    onnx.save(found, tmp_path / "inferred.onnx")
    assert len(nodes(tmp_path / "inferred.onnx")) == 1
    both(served, tmp_path / "inferred.onnx", 1e-5)


# Other versions of ONNX's operators.


@pytest.mark.parametrize("version", [18, 21, 22])
def test_another_opset(served: Served, tmp_path: Path, version: int) -> None:
    """onnx's converter keeps the node and drops every function, without a word; --add-functions writes them anew."""
    path = tmp_path / "converted.onnx"
    onnx.save(version_converter.convert_version(onnx.load(served.path), version), path)
    assert len(nodes(path)) == 1
    assert not functions(path)
    np.testing.assert_allclose(run(path, served.library), served.expected, rtol=1e-5, atol=1e-6)
    add_functions(path, [cases.DEFINITION], path)
    proto = onnx.load(path)
    assert {entry.version for item in (proto, *proto.functions) for entry in item.opset_import if not entry.domain} == {
        version
    }
    onnx.checker.check_model(proto, full_check=True)
    both(served, path, 1e-5)


def test_an_opset_that_functions_cannot_have(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "converted.onnx"
    onnx.save(version_converter.convert_version(onnx.load(served.path), 17), path)
    np.testing.assert_allclose(run(path, served.library), served.expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(Exception, match="has opset version 17; oneop writes functions for 18 and newer"):
        add_functions(path, [cases.DEFINITION], path)
