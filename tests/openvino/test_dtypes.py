"""Every dtype: kernels compute in those of the model, whatever OpenVINO's CPU plugin makes of its tensors."""

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import openvino
import pytest
from onnx import helper

import oneop
from oneop.definition.dtypes import BY_NAME, DTYPES, DType, ElementType
from oneop.errors import BuildError
from oneop.kernels.spec import KernelOptions, KernelSpec
from oneop.targets.openvino.dtypes import NAMES, require_dtypes
from oneop.targets.openvino.running import MODEL_RUNNERS
from support.ort_models import feeds
from support.ov_models import compiled, model, more, operator, read, run

NATIVE = MODEL_RUNNERS[1]


def run_file(made: onnx.ModelProto, op: oneop.Operator, inputs: list[np.ndarray]) -> list[Any]:
    """As `oneop check` does it: numpy's arrays in and out, bfloat16 too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(made.SerializeToString())
        return NATIVE.open(path, [op], None)(feeds(inputs))


def numpy_type(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def test_every_dtype_has_a_name_that_openvino_knows() -> None:
    assert list(NAMES) == [dtype.name for dtype in DTYPES]
    for theirs in NAMES.values():
        assert isinstance(getattr(openvino.Type, theirs), openvino.Type)


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype(name: str) -> None:
    """Integers wrap around in their own width, though the plugin computes most of them in 32 bits."""
    kind = numpy_type(name)
    x, y = ([1, 0, 7, 3], [1, 1, 9, 2]) if name != "bool" else ([1, 0, 1, 0], [1, 1, 0, 0])
    inputs = [np.array(x).astype(kind), np.array(y).astype(kind)]
    (outcome,) = run_file(model(more("minus"), inputs), more("minus"), inputs)
    assert outcome.dtype == kind
    expected = inputs[0] & ~inputs[1] if name == "bool" else inputs[0] - inputs[1]
    np.testing.assert_array_equal(outcome.astype("float64"), expected.astype("float64"))


@pytest.mark.parametrize("hint", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_the_precision_that_openvino_is_asked_for_is_not_the_kernels(name: str, hint: str) -> None:
    kind = numpy_type(name)
    x = (np.arange(5) + 1 / 3).astype(kind)
    y = np.ones(5).astype(kind)
    loaded = compiled(model(more("minus"), [x, y]), more("minus"), INFERENCE_PRECISION_HINT=hint)
    given = [as_tensor(x), as_tensor(y)]
    request = loaded.create_infer_request()
    request.infer(given)
    found = request.get_output_tensor(0).data.copy()
    exact = x - y
    if name == "bfloat16":
        found = found.view(ml_dtypes.bfloat16)
    if name == "float64":
        exact = (x.astype("float32").astype(float) - y).astype("float32")
    np.testing.assert_array_equal(found.astype(float), exact.astype(float))


def as_tensor(array: np.ndarray) -> openvino.Tensor:
    if array.dtype.name != "bfloat16":
        return openvino.Tensor(array)
    return openvino.Tensor(array.view(np.uint16), openvino.Shape(array.shape), openvino.Type.bf16)


def test_kernels_of_half_precision_only() -> None:
    x = np.array([1.5, -2, 3e4], "float16")
    np.testing.assert_array_equal(run(operator("doubled"), [x])[0], x + x)


def test_a_kernel_in_float64_computes_in_float64() -> None:
    x = np.ones(3)
    np.testing.assert_allclose(run(more("precise"), [x])[0], np.full(3, 1e-9), rtol=1e-6)
    assert ((x.astype("float32") + np.float32(1e-9)) - x.astype("float32")).max() == 0


KINDS = [("float64", "Add"), ("int16", "Add"), ("int64", "Add"), ("uint8", "Add"), ("bool", "Not"), ("float16", "Add")]
KINDS += [("uint16", "Add"), ("uint32", "Add"), ("uint64", "Add"), ("bfloat16", "Add")]
X = np.array([1.5, -2, 0, 100], "float32")


def kinds_of(x: np.ndarray) -> list[np.ndarray]:
    whole = np.trunc(np.abs(x))
    return [
        x.astype("float64") / 2,
        x.astype("int16"),
        x.astype("int64") * 2**20,
        *(whole.astype("uint8"), x > 0, (x / 2).astype("float16")),
        *(whole.astype("uint16"), whole.astype("uint32"), whole.astype("uint64"), (x / 2).astype(ml_dtypes.bfloat16)),
    ]


def test_outputs_of_dtypes_that_no_input_has() -> None:
    found = run_file(model(more("kinds"), [X]), more("kinds"), [X])
    for (name, _), mine, exact in zip(KINDS, found, kinds_of(X), strict=True):
        assert mine.dtype.name == name
        np.testing.assert_array_equal(mine.astype(float), exact.astype(float), err_msg=name)


@pytest.mark.parametrize("index", range(len(KINDS)), ids=[name for name, _ in KINDS])
def test_nodes_of_openvino_take_such_outputs(index: int) -> None:
    """Each output goes on into a node of OpenVINO's own: it is added to itself, or negated."""
    op = more("kinds")
    made = model(op, [X])
    value = made.graph.output[index]
    twice = KINDS[index][1] == "Add"
    made.graph.node.append(helper.make_node(KINDS[index][1], [value.name] * (1 + twice), ["z"]))
    output = helper.make_tensor_value_info("z", value.type.tensor_type.elem_type, None)
    del made.graph.output[:]
    made.graph.output.append(output)
    (found,) = run_file(made, op, [X])
    exact = kinds_of(X)[index]
    np.testing.assert_array_equal(found.astype(float), (exact + exact if twice else ~exact).astype(float))


def test_int64_that_openvino_has_no_room_for_is_an_error() -> None:
    x = np.array([1, 4096], "float32")
    message = (
        "ovt::kinds: output `longs` holds 4294967296, and OpenVINO computes 64-bit integers in 32 bits, unless the"
        " operator's first output has 64. Give smaller numbers, or name this output first."
    )
    with pytest.raises(Exception, match=re.escape(message)):
        run(more("kinds"), [x])


def test_int64_in_the_first_output_keeps_every_bit() -> None:
    found = run(more("longs"), [np.array([1, -3], "float32")])
    assert [array.dtype.name for array in found] == ["int64", "int64"]
    assert found[0].tolist() == [2**33, -3 * 2**33]
    assert found[1].tolist() == [-(2**33), 3 * 2**33]


def test_integers_that_do_not_fit_the_plugin_are_its_own_affair() -> None:
    """The documents say that OpenVINO hands int64 to every node as int32. If this fails, they can be mended."""
    x = np.array([2**40 + 5, 7])
    found = run(more("minus"), [x, np.zeros(2, "int64")])[0]
    assert found.tolist() == [5, 7]


def test_dtypes_that_no_kernel_serves() -> None:
    op = operator("affine")
    message = (
        "ortt::affine: node `the_node` has float16 inputs, and this library holds no kernel for that. Add the dtype to"
        ' the operator\'s `dtypes` and build the library again, or export the model with fallback="inline", which'
        " needs no library."
    )
    with pytest.raises(Exception, match=re.escape(message)):
        read(model(op, [np.zeros((2, 3), "float16")]), op)
    with pytest.raises(Exception, match="ortt::gather: node `the_node` has float32, int8 inputs"):
        read(model(operator("gather"), [np.zeros(3, "float32"), np.zeros(2, "int8")]), operator("gather"))


def test_mixed_dtypes() -> None:
    op = operator("affine")
    message = (
        "ortt::affine: input `shift` of node `the_node` has type f64; another input of the same dtype variable `Float`"
        " has f32. Give both the same."
    )
    with pytest.raises(Exception, match=re.escape(message)):
        read(model(op, [np.zeros((2, 3), "float32"), np.zeros(3, "float64")]), op)


def test_a_dtype_that_the_definition_does_not_admit() -> None:
    message = "ortt::affine: input `x` of node `the_node` has type i32; its definition admits f32, f64, f16, bf16."
    with pytest.raises(Exception, match=re.escape(message)):
        read(model(operator("affine"), [np.zeros((2, 3), "int32")]), operator("affine"))


def test_a_dtype_that_openvino_lacks_is_refused_when_the_library_is_built() -> None:
    complex64 = DType("complex64", "c64", (5, 64), 14, "tensor(complex64)", "float _Complex", "std::complex<float>")
    definition = operator("affine").definition
    element = ElementType("Complex", (BY_NAME["float32"], complex64))
    inputs = tuple(replace(item, element=element) for item in definition.inputs)
    wider = replace(definition, inputs=inputs, outputs=(replace(definition.outputs[0], element=element),))
    sources = operator("affine").kernel_spec().sources
    message = (
        "ortt::affine: `x`, `shift`, `factor`, `out` may be complex64, and OpenVINO has no such type. Leave it out of"
        " the kernel's `dtypes` (float32, float64, "
    )
    with pytest.raises(BuildError, match=re.escape(message)):
        require_dtypes([KernelSpec(wider, sources)])
    require_dtypes([KernelSpec(wider, sources, KernelOptions(dtypes=(BY_NAME["float32"],)))])


def test_a_name_that_openvino_has_of_its_own() -> None:
    """The CPU plugin knows nodes by their type's name: a `Softmax` would be its own."""
    x = np.array([1, 2, 3], "float32")
    np.testing.assert_array_equal(run(more("softmax"), [x], {"axis": 0})[0], x + 1)
    assert model(more("softmax"), [x]).graph.node[0].op_type == "Softmax"
