"""Numbers: every kind of operator in ONNX Runtime against its reference in float64."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from support.ort_models import assert_right, feeds, model, operator, reference, run, session

RANDOM = np.random.default_rng(0)
DTYPES = ["float32", "float64"]


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("present", [(True, True), (True, False), (False, True), (False, False)])
def test_optional_inputs(dtype: str, present: tuple[bool, bool]) -> None:
    optional = [floats(3, dtype=dtype) if here else None for here in present]
    assert_right(operator("affine"), [floats(5, 3, dtype=dtype), *optional], alpha=2.0)


def test_an_optional_input_may_be_left_out_altogether() -> None:
    assert_right(operator("affine"), [floats(5, 3)], alpha=2.0)
    assert_right(operator("affine"), [floats(5, 3), floats(3)], alpha=2.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_variadic_inputs_and_several_outputs(dtype: str, count: int) -> None:
    assert_right(operator("totals"), [floats(4, 3, dtype=dtype) for _ in range(count)])


@pytest.mark.parametrize("used", ["total", "count", "largest"])
def test_outputs_that_nobody_asks_for(used: str) -> None:
    inputs = [floats(4, 3), floats(4, 3)]
    expected = dict(zip(("total", "count", "largest"), reference(operator("totals"), inputs, {}), strict=True))
    made = model(operator("totals"), inputs)
    for output in [output for output in made.graph.output if output.name != used]:
        made.graph.output.remove(output)
    (result,) = session(made).run(None, feeds(inputs))
    np.testing.assert_allclose(result, expected[used], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("named", [("total", "count"), ("total",), ("total", "", "largest"), ("", "count", "largest")])
def test_a_node_that_does_not_name_all_outputs_is_refused(named: tuple[str, ...]) -> None:
    """By ONNX Runtime. Were they optional, its shape inference would write past the end of an array of its own."""
    inputs = [floats(4, 3), floats(4, 3)]
    with pytest.raises(Exception, match="the_node"):
        session(model(operator("totals"), inputs, outputs=named))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("values", [[1, -1, 2, 0, 3], [-1, -2], [], [5]])
def test_sizes_that_only_the_kernel_knows(dtype: str, values: list[float]) -> None:
    assert_right(operator("positive"), [np.array(values, dtype)])


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (2, 2), (5, 3)])
def test_computed_dimensions(kernel: int, stride: int) -> None:
    assert_right(operator("windows"), [floats(9, 2)], kernel=kernel, stride=stride)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 3, 4), (2, 1, 3, 2, 4)])
def test_leading_dimensions(shape: tuple[int, ...]) -> None:
    assert_right(operator("row_sums"), [floats(*shape)])


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_two_dtype_variables(dtype: str, index: str) -> None:
    assert_right(operator("gather"), [floats(6, dtype=dtype), np.array([5, 0, 3], index)])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_compute(shape: tuple[int, int]) -> None:
    assert_right(operator("affine"), [floats(*shape), floats(shape[1]), None], alpha=2.0)
    assert_right(operator("nested"), [floats(*shape)])


def test_float16() -> None:
    x = floats(7, dtype="float16")
    np.testing.assert_array_equal(run(operator("doubled"), [x])[0], x + x)


def test_bfloat16() -> None:
    node = helper.make_node("Doubled", ["narrow"], ["twice"], domain="ortt")
    casts = [
        helper.make_node("Cast", ["x0"], ["narrow"], to=TensorProto.BFLOAT16),
        node,
        helper.make_node("Cast", ["twice"], ["out"], to=TensorProto.FLOAT),
    ]
    made = model(operator("doubled"), [floats(3)])
    del made.graph.node[:]
    made.graph.node.extend(casts)
    x = np.array([1.5, -0.375, 3e38 / 2], "float32")  # the last overflows in float16
    x[2] = np.float32(2.0**126)
    np.testing.assert_array_equal(session(made).run(None, {"x0": x})[0], x + x)


def test_scratch_memory_and_a_loop_inside_a_loop() -> None:
    assert_right(operator("nested"), [floats(50, 70)])


def test_a_kernel_in_c() -> None:
    assert_right(operator("scaled"), [floats(9)], alpha=-0.0)
    assert_right(operator("scaled"), [floats(9, dtype="float64")], alpha=1.5)


def test_two_libraries_share_a_namespace_in_one_session() -> None:
    x = floats(6)
    first = model(operator("scaled"), [x], {"alpha": 3.0})
    second = helper.make_node("Required", ["out"], ["again"], domain="ortt", scale=2.0)
    first.graph.node.append(second)
    first.graph.output.append(helper.make_tensor_value_info("again", TensorProto.FLOAT, None))
    outputs = session(first).run(None, {"x0": x})
    np.testing.assert_array_equal(outputs[0], 3 * x)
    np.testing.assert_array_equal(outputs[1], 6 * x)


def test_a_node_in_a_branch() -> None:
    """Libraries are found for nodes of subgraphs too."""
    inner = model(operator("required"), [floats(3)], {"scale": 4.0}).graph
    other = helper.make_graph(
        [helper.make_node("Identity", ["x0"], ["same"])],
        "other",
        [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, None)],
    )
    branch = helper.make_graph(inner.node, "branch", [], inner.output)
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node("If", ["yes"], ["result"], then_branch=branch, else_branch=other)],
            "outer",
            [*inner.input, helper.make_tensor_value_info("yes", TensorProto.BOOL, [])],
            [helper.make_tensor_value_info("result", TensorProto.FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ortt", 1)],
        ir_version=8,
    )
    x = floats(3)
    np.testing.assert_array_equal(session(made).run(None, {"x0": x, "yes": np.array(True)})[0], 4 * x)


def test_the_kernel_runs_and_not_the_function_of_the_same_model() -> None:
    """A wrong function shows which of the two gave the numbers."""
    x = floats(4)
    made = model(operator("required"), [x], {"scale": 2.0})
    wrong = onnx.parser.parse_function(
        '<domain: "ortt", opset_import: ["" : 18]> Required <scale> (x) => (y) {y = Neg(x)}'
    )
    made.functions.append(wrong)
    np.testing.assert_array_equal(session(made).run(None, {"x0": x})[0], 2 * x)
    import onnxruntime

    plain = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(plain.run(None, {"x0": x})[0], -x)
