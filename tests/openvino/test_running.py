"""Kernels at work: threads, calls at the same time, and failures that are errors of OpenVINO's."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import openvino
import pytest
from onnx import numpy_helper

import oneop
from oneop.targets.openvino import core
from support.ov_models import compiled, model, more, operator, read, results

X = np.arange(5, dtype="float32")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_runs_on_as_many_threads_as_openvino_has(threads: int) -> None:
    x = np.ones(4096, "float32")
    loaded = compiled(model(more("threads"), [x]), more("threads"), INFERENCE_NUM_THREADS=threads)
    (found,) = results(loaded, [x])
    assert found[0] == threads
    np.testing.assert_array_equal(found[1:], x[1:])


def test_a_stream_has_its_share_of_the_threads() -> None:
    x = np.ones(4096, "float32")
    loaded = compiled(model(more("threads"), [x]), more("threads"), INFERENCE_NUM_THREADS=2, NUM_STREAMS=2)
    assert results(loaded, [x])[0][0] == 1


@pytest.mark.parametrize("base", ["nested", "affine"])
def test_the_answer_does_not_depend_on_the_threads(base: str) -> None:
    x = np.random.default_rng(0).standard_normal((300, 40)).astype("float32")
    made = model(operator(base), [x])
    one, two = (results(compiled(made, operator(base), INFERENCE_NUM_THREADS=n), [x])[0] for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, x + 1 if base == "nested" else x)


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("base", ["positive", "nested", "affine"])
def test_requests_at_the_same_time(base: str, streams: int) -> None:
    ndim = 1 if base == "positive" else 2
    shapes = [tuple("ab"[:ndim])]
    made = model(operator(base), [np.zeros((1,) * ndim, "float32")], shapes=shapes)
    loaded = compiled(made, operator(base), NUM_STREAMS=streams)

    def call(seed: int) -> None:
        random = np.random.default_rng(seed)
        request = loaded.create_infer_request()
        for _ in range(40):
            x = random.standard_normal(random.integers(1, 70, ndim)).astype("float32")
            request.start_async([x])
            request.wait()
            found = request.get_output_tensor(0).data
            np.testing.assert_array_equal(found, x[x > 0] if base == "positive" else x + (base == "nested"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(8)))


def test_loops_of_many_requests_at_the_same_time() -> None:
    """All of them want the same helpers."""
    x = -np.ones(4096, "float32")
    loaded = compiled(model(more("threads"), [x]), more("threads"), INFERENCE_NUM_THREADS=2)

    def call(_: int) -> None:
        request = loaded.create_infer_request()
        for _ in range(50):
            request.start_async([x])
            request.wait()
            found = request.get_output_tensor(0).data
            assert found[0] in (1, 2)
            np.testing.assert_array_equal(found[1:], x[1:])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(8)))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (1, "ortt::failing: the kernel says no"),
        (2, "ortt::failing: the kernel threw an exception: thrown by the kernel"),
        (3, "ortt::failing: the kernel threw"),
        (5, "ortt::failing: the kernel gave output `out` no size. Call ctx.resize"),
        (6, "ortt::failing: "),
        (7, "ortt::failing: a ? byte, half of ?? and all of 日"),
        (8, "ortt::failing: the kernel resized output `out` to (6,) and then to (5,). Resize an output once."),
        (9, "ortt::failing: the kernel failed with an empty message"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_that_fails(how: int, said: str, threads: int) -> None:
    op = operator("failing")
    loaded = compiled(model(op, [X], {"how": how}), op, INFERENCE_NUM_THREADS=threads)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=re.escape(said)):
            results(loaded, [X])
    healthy = compiled(model(op, [X]), op, INFERENCE_NUM_THREADS=threads)
    np.testing.assert_array_equal(results(healthy, [X])[0], X)


def test_a_loop_that_fails() -> None:
    op = operator("failing")
    loaded = compiled(model(op, [X], {"how": 4}), op, INFERENCE_NUM_THREADS=2)
    with pytest.raises(RuntimeError, match="ortt::failing: the kernel threw an exception: thrown in a loop"):
        results(loaded, [X])


def test_a_kernel_that_fails_while_openvino_computes_constants() -> None:
    """A node whose inputs are all constants runs when the model is compiled; an error there is one too."""
    op = operator("gather")
    made = model(op, [X, np.array([9])])
    constant = numpy_helper.from_array(X, "x0")
    index = numpy_helper.from_array(np.array([9]), "x1")
    made.graph.initializer.extend([constant, index])
    del made.graph.input[:]
    with pytest.raises(RuntimeError, match=r"ortt::gather: .*an index is outside of x"):
        results(compiled(made, op), [])


def test_a_node_of_constants() -> None:
    op = operator("gather")
    made = model(op, [X, np.array([3, 1])])
    made.graph.initializer.extend([numpy_helper.from_array(X, "x0"), numpy_helper.from_array(np.array([3, 1]), "x1")])
    del made.graph.input[:]
    assert results(compiled(made, op), [])[0].tolist() == [3, 1]


def test_a_tensor_of_more_dimensions_than_the_binary_interface_has() -> None:
    op = operator("row_sums")
    with pytest.raises(Exception, match=r"ortt::row_sums: an input has 33 dimensions; at most 32 are supported\."):
        read(model(op, [np.zeros((1,) * 32, "float32")], shapes=[(1,) * 33]), op)


def test_two_libraries_in_one_core() -> None:
    both = core([operator("scaled"), operator("affine"), more("chain")])
    for op in (operator("scaled"), more("chain")):
        inputs = [X] if op is operator("scaled") else [None, X]
        file: onnx.ModelProto = model(op, inputs)
        loaded = both.compile_model(both.read_model(file.SerializeToString()), "CPU")
        np.testing.assert_array_equal(results(loaded, [X])[0], 2 * X if op is operator("scaled") else 100 * X)


def test_a_model_outlives_its_core_and_the_extension() -> None:
    op = operator("nested")
    x = np.ones((64, 64), "float32")
    loaded = compiled(model(op, [x]), op)
    other = openvino.Core()
    del other
    for _ in range(3):
        np.testing.assert_array_equal(results(loaded, [x])[0], x + 1)


@pytest.mark.parametrize("ops", [3, [3]])
def test_what_is_no_operator(ops: Any) -> None:
    with pytest.raises(oneop.BuildError) as caught:
        core(ops)
    assert str(caught.value) == (
        "oneop.openvino takes operators, or the path of a file that defines some, not int. Pass what @oneop.op made of"
        " your function."
    )
