"""The model repository, read as Triton reads it: with its own protobuf, and the files where the configuration says."""

import importlib.metadata
import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from google.protobuf import text_format
from onnx import TensorProto, helper
from scaled_linear_cpp import scaled_linear as example
from typer.testing import CliRunner

import oneop
from oneop.cli import app
from oneop.errors import BuildError, ExportError
from oneop.packaging import model_repository
from oneop.packaging.triton import _Tensor as Tensor
from oneop.packaging.triton import config_text
from support.ort_models import OPERATORS, model, operator

PLAIN = OPERATORS / "plain.py"
X = np.arange(5, dtype="float32")


def _protobuf() -> Any:
    """model_config_pb2 of tritonclient; its package wants grpc, which the file itself does not."""
    distribution = importlib.metadata.distribution("tritonclient")
    (file,) = [file for file in distribution.files or [] if str(file).endswith("grpc/model_config_pb2.py")]
    spec = importlib.util.spec_from_file_location("model_config_pb2", distribution.locate_file(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROTOBUF = _protobuf()
TYPES = {
    **{"FLOAT": "FP32", "DOUBLE": "FP64", "FLOAT16": "FP16", "BFLOAT16": "BF16", "BOOL": "BOOL", "STRING": "STRING"},
    **{f"{sign}INT{bits}": f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
}
"""ONNX's names of the types that Triton has, and Triton's."""


def parsed(text: str) -> Any:
    return text_format.Parse(text, PROTOBUF.ModelConfig())


def read(folder: Path) -> Any:
    return parsed((folder / "config.pbtxt").read_text())


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "classifier.onnx"
    layer = example.ScaledLinear(4, 3, alpha=0.5, beta=2.0)
    shapes = {"x": {0: torch.export.Dim("batch")}}
    oneop.export(layer, (torch.ones(2, 4),), path, dynamic_shapes=shapes, fallback="none", verbose=False)
    return path


def types(tensors: Any) -> list[tuple[str, str, list[int]]]:
    return [(item.name, PROTOBUF.DataType.Name(item.data_type), list(item.dims)) for item in tensors]


def test_a_repository(exported: Path, tmp_path: Path) -> None:
    folder = model_repository(example.__file__, exported, tmp_path / "models")
    assert folder == tmp_path / "models" / "classifier"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        "1/model.onnx",
        "config.pbtxt",
        "libscaled_linear_onnxruntime.so",
    ]
    config = read(folder)
    assert (config.name, config.platform, config.backend) == ("classifier", "onnxruntime_onnx", "onnxruntime")
    assert config.max_batch_size == 0
    assert types(config.input) == [("x", "TYPE_FP32", [-1, 4])]
    assert [kinds for _, *kinds in types(config.output)] == [["TYPE_FP32", [-1, 3]]]
    assert list(config.model_operations.op_library_filename) == ["/models/classifier/libscaled_linear_onnxruntime.so"]
    assert config.WhichOneof("scheduling_choice") is None

    # What the server does with it, in the folder where it sees the repository.
    (path,) = config.model_operations.op_library_filename
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(folder.parent / Path(path).relative_to("/models")))
    session = onnxruntime.InferenceSession(folder / "1" / "model.onnx", options)
    x = np.ones((2, 4), "float32")
    assert session.run([config.output[0].name], {config.input[0].name: x})[0].shape == (2, 3)


def test_batches(exported: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app,
        [
            *("package", example.__file__, "--triton", str(tmp_path), "--model", str(exported)),
            *("--max-batch-size", "16", "--name", "batched", "--mount", "/srv/repository"),
        ],
    )
    assert done.exit_code == 0, done.output
    assert Path(done.stdout.strip()) == tmp_path / "batched"
    config = read(tmp_path / "batched")
    assert config.max_batch_size == 16
    assert config.WhichOneof("scheduling_choice") == "dynamic_batching"
    assert types(config.input) == [("x", "TYPE_FP32", [4])]
    assert [kinds for _, *kinds in types(config.output)] == [["TYPE_FP32", [3]]]
    (library,) = config.model_operations.op_library_filename
    assert library == "/srv/repository/batched/libscaled_linear_onnxruntime.so"


def test_batches_that_are_none(tmp_path: Path) -> None:
    onnx.save(model(operator("scaled"), [X]), tmp_path / "m.onnx")
    message = (
        "m: `x0` has shape (5), and Triton can make batches only along a first dimension that is dynamic, and the same"
        " in every input and output. Leave --max-batch-size out, or export the model with that dimension named in"
        " dynamic_shapes."
    )
    with pytest.raises(BuildError, match=re.escape(message)):
        model_repository(PLAIN, tmp_path / "m.onnx", tmp_path / "models", max_batch_size=4)
    with pytest.raises(BuildError, match=re.escape("--max-batch-size is -1. Pass 0 or more.")):
        model_repository(PLAIN, tmp_path / "m.onnx", tmp_path / "models", max_batch_size=-1)
    assert not (tmp_path / "models").exists()


def test_every_dtype_and_a_scalar(tmp_path: Path) -> None:
    """Of a model of ONNX's own nodes; a library more does no harm."""
    names = list(TYPES)
    values = [helper.make_tensor_value_info(f"in_{name}", getattr(TensorProto, name), ["n", 2]) for name in names]
    values.append(helper.make_tensor_value_info("scalar", TensorProto.FLOAT, []))
    nodes = [helper.make_node("Identity", [value.name], [f"out_{value.name}"]) for value in values]
    outputs = [
        helper.make_tensor_value_info(f"out_{value.name}", value.type.tensor_type.elem_type, shape)
        for value, shape in zip(values, [*[["n", 2]] * len(names), []], strict=True)
    ]
    made = helper.make_model(
        helper.make_graph(nodes, "g", values, outputs), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    onnx.save(made, tmp_path / "all.onnx")
    config = read(model_repository(PLAIN, tmp_path / "all.onnx", tmp_path / "models"))
    assert types(config.input)[:-1] == [(f"in_{name}", f"TYPE_{kind}", [-1, 2]) for name, kind in TYPES.items()]
    assert types(config.input)[-1] == ("scalar", "TYPE_FP32", [1])
    assert config.input[-1].HasField("reshape")
    assert list(config.input[-1].reshape.shape) == []
    assert not config.input[0].HasField("reshape")


def test_names_that_need_quotes() -> None:
    name = 'a "b"\\\n日?'
    config = parsed(config_text("m", "/models/m/lib.so", [Tensor(name, "TYPE_FP32", ("n",))], []))
    assert config.input[0].name == name


def test_weights_in_a_second_file(tmp_path: Path) -> None:
    made = model(operator("scaled"), [X])
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(600, "float32"), "w"))
    made.graph.node.append(helper.make_node("Identity", ["w"], ["kept"]))
    made.graph.output.append(helper.make_tensor_value_info("kept", TensorProto.FLOAT, [600]))
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    folder = model_repository(PLAIN, tmp_path / "m.onnx", tmp_path / "models")
    assert (folder / "1" / "m.onnx.data").read_bytes() == (tmp_path / "m.onnx.data").read_bytes()
    (tmp_path / "m.onnx.data").unlink()
    with pytest.raises(ExportError, match=r"m\.onnx\.data.*cannot be read beside the model.*or copy its weights"):
        model_repository(PLAIN, tmp_path / "m.onnx", tmp_path / "other")


# ---- What is refused ------------------------------------------------------------------------------------------------


def test_a_model_that_is_there(tmp_path: Path) -> None:
    onnx.save(model(operator("scaled"), [X]), tmp_path / "m.onnx")
    folder = model_repository(PLAIN, tmp_path / "m.onnx", tmp_path / "models")
    before = (folder / "config.pbtxt").stat()
    with pytest.raises(BuildError, match=r"models/m exists\. Remove it, or pass another --name\."):
        model_repository(PLAIN, tmp_path / "m.onnx", tmp_path / "models")
    assert (folder / "config.pbtxt").stat() == before
    assert [path.name for path in folder.parent.iterdir()] == ["m"]


@pytest.mark.parametrize("name", ["", "a b", "../up", ".hidden", "-x", "a/b"])
def test_names(name: str, tmp_path: Path) -> None:
    onnx.save(model(operator("scaled"), [X]), tmp_path / "m.onnx")
    with pytest.raises(BuildError, match="is not a name for a model of Triton"):
        model_repository(PLAIN, tmp_path / "m.onnx", tmp_path / "models", name=name)


def test_models_that_do_not_go(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("hello")
    with pytest.raises(ExportError, match=r"text\.onnx: this is not an ONNX model"):
        model_repository(PLAIN, tmp_path / "text.onnx", tmp_path / "models")
    with pytest.raises(ExportError, match=r"none\.onnx cannot be read: No such file"):
        model_repository(PLAIN, tmp_path / "none.onnx", tmp_path / "models")
    stale = {"oneop.fingerprint.ortt::scaled": "0123456789abcdef"}
    onnx.save(model(operator("scaled"), [X], metadata=stale), tmp_path / "stale.onnx")
    with pytest.raises(ExportError, match="ortt::scaled: the model was exported from another definition"):
        model_repository(PLAIN, tmp_path / "stale.onnx", tmp_path / "models")
    onnx.save(model(operator("affine"), [np.zeros((2, 2), "float32")]), tmp_path / "other.onnx")
    with pytest.raises(ExportError, match=r"other\.onnx: ONNX Runtime does not load it with libplain_onnxruntime\.so"):
        model_repository(PLAIN, tmp_path / "other.onnx", tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_a_shape_that_nobody_knows(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [output])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(made, tmp_path / "m.onnx")
    message = "the number of dimensions of `x` is not known, and Triton has to know it. Export the model again, with"
    with pytest.raises(ExportError, match=re.escape(message)):
        model_repository(PLAIN, tmp_path / "m.onnx", tmp_path / "models")


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    onnx.save(model(operator("scaled"), [X]), tmp_path / "m.onnx")
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", "/proc/none"):
        with pytest.raises(BuildError, match=r"the model cannot be written to .*: .*Name a folder that can be written"):
            model_repository(PLAIN, tmp_path / "m.onnx", folder)
