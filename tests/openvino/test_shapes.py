"""Inputs that are absent or many, and sizes that are not known when a model is read."""

import re
from typing import Any

import numpy as np
import openvino
import pytest

from oneop.targets.openvino import core
from support.ort_models import Array, reference
from support.ov_models import compiled, model, more, operator, read, results, run

V = np.arange(1, 4, dtype="float32")


@pytest.mark.parametrize("absent", [(), (0,), (2,), (3,), (0, 2), (0, 3), (2, 3), (0, 2, 3)])
def test_optional_inputs(absent: tuple[int, ...]) -> None:
    """None of them, the first, one in the middle, the last, and several."""
    inputs: list[Array] = [None if i in absent else V * (i + 1) for i in range(4)]
    expected = sum(factor * x for factor, x in zip((1000, 100, 10, 1), inputs, strict=True) if x is not None)
    np.testing.assert_array_equal(run(more("chain"), inputs)[0], expected)


@pytest.mark.parametrize("absent", [(), (0,), (2,), (0, 2)])
def test_optional_inputs_in_saved_models(absent: tuple[int, ...], tmp_path: Any) -> None:
    op = more("chain")
    inputs: list[Array] = [None if i in absent else V * (i + 1) for i in range(4)]
    openvino.save_model(read(model(op, inputs), op), tmp_path / "saved.xml")
    again = core(op)
    loaded = again.compile_model(again.read_model(tmp_path / "saved.xml"), "CPU")
    np.testing.assert_array_equal(results(loaded, inputs)[0], run(op, inputs)[0])


def test_optional_inputs_that_the_node_does_not_name() -> None:
    np.testing.assert_array_equal(run(more("chain"), [None, V])[0], 100 * V)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([V], "ovt::chain: node `the_node` has no input `b`, which is not optional. Connect it."),
        ([V] * 5, "ovt::chain: node `the_node` has 5 inputs; its definition has 4. Connect those it defines."),
    ],
)
def test_too_few_and_too_many_inputs(inputs: list[Array], said: str) -> None:
    with pytest.raises(Exception, match=re.escape(said)):
        read(model(more("chain"), inputs), more("chain"))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_variadic_inputs(count: int, tmp_path: Any) -> None:
    op = operator("totals")
    xs: list[Array] = [np.random.default_rng(i).standard_normal((2, 3)).astype("float32") for i in range(count)]
    found = run(op, xs)
    for mine, exact in zip(found, reference(op, xs, {}), strict=True):
        np.testing.assert_allclose(mine, exact, rtol=1e-6)
    assert found[1].dtype == np.int64


def test_a_variadic_input_without_tensors() -> None:
    message = "ortt::totals: node `the_node` has no input `xs`, which takes one tensor or more. Connect it."
    with pytest.raises(Exception, match=re.escape(message)):
        read(model(operator("totals"), []), operator("totals"))


@pytest.mark.parametrize("used", [["values", ""], ["", "positions"]])
def test_outputs_that_nobody_uses(used: list[str]) -> None:
    x = np.array([1, -1, 2], "float32")
    op = operator("positive")
    (found,) = results(compiled(model(op, [x], outputs=used), op), [x])
    np.testing.assert_array_equal(found, x[x > 0] if used[0] else [0, 2])


# ---- Sizes ----------------------------------------------------------------------------------------------------------


def inferred(
    base: str, shapes: list[Any], attributes: dict[str, Any] | None = None, dtype: str = "float32"
) -> list[str]:
    op = operator(base)
    inputs = [np.zeros((1,) * (0 if shape is None else len(shape)), "float32") for shape in shapes]
    loaded = read(model(op, inputs, attributes, shapes=shapes), op)
    return [str(output.get_partial_shape()) for output in loaded.outputs]


def test_sizes_that_are_known() -> None:
    assert inferred("windows", [(7, 3)], {"kernel": 3, "stride": 2}) == ["[3,6]"]
    assert inferred("row_sums", [(2, 3, 4)]) == ["[2,3]"]
    assert inferred("totals", [(2, 3), (2, 3)]) == ["[2,3]", "[1]", "[2]"]


def test_sizes_that_are_not() -> None:
    assert inferred("windows", [("h", 3)]) == ["[?,6]"]
    assert inferred("windows", [(9, "w")], {"kernel": 3}) == ["[7,?]"]
    assert inferred("row_sums", [("a", 3, "b")]) == ["[?,3]"]
    assert inferred("totals", [("n", 3), (2, "k")]) == ["[2,3]", "[1]", "[2]"]
    assert inferred("positive", [(4,)]) == ["[?]", "[?]"]


def test_numbers_of_dimensions_that_are_not() -> None:
    """The definition says how many an input has, but for a group of leading ones."""
    assert inferred("windows", [None]) == ["[?,?]"]
    assert inferred("attributes", [None]) == ["[?,14]"]
    assert inferred("row_sums", [None]) == ["[...]"]


def test_intervals() -> None:
    op = operator("totals")
    loaded = read(model(op, [np.zeros((1, 1), "float32")] * 2, shapes=[("n", "k"), ("n", "k")]), op)
    loaded.reshape({0: openvino.PartialShape("[1..8,2..6]"), 1: openvino.PartialShape("[4..9,3]")})
    assert [str(output.get_partial_shape()) for output in loaded.outputs] == ["[4..8,3]", "[1]", "[4..8]"]


def test_a_model_that_is_reshaped() -> None:
    op = operator("row_sums")
    loaded = read(model(op, [np.zeros((1, 1), "float32")], shapes=[None]), op)
    for shape in ((2, 3), (4, 1, 2)):
        loaded.reshape(openvino.PartialShape(list(shape)))
        x = np.random.default_rng(0).standard_normal(shape).astype("float32")
        found = results(core([]).compile_model(loaded, "CPU"), [x])[0]
        np.testing.assert_allclose(found, x.sum(-1), rtol=1e-5)


@pytest.mark.parametrize("base", ["row_sums", "windows", "positive", "totals", "affine", "nested"])
def test_one_compiled_model_for_every_size(base: str) -> None:
    op = operator(base)
    ndim = 1 if base == "positive" else 2
    count = 2 if base == "totals" else 1
    stated = [tuple("ab"[:ndim])] * count
    loaded = compiled(model(op, [np.zeros((1,) * ndim, "float32")] * count, shapes=stated), op)
    attributes = {"kernel": 3, "stride": 1} if base == "windows" else {}
    for sizes in ((4, 3), (9, 2), (3, 5), (64, 33)):
        xs: list[Array] = [
            np.random.default_rng(i).standard_normal(sizes[:ndim]).astype("float32") for i in range(count)
        ]
        expected = (xs[0],) if base == "affine" else reference(op, xs, attributes)
        for mine, exact in zip(results(loaded, xs), expected, strict=True):
            assert mine.shape == exact.shape  # type: ignore[union-attr]
            np.testing.assert_allclose(mine, exact, rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(0,), (1,), (5,)])
@pytest.mark.parametrize("static", [True, False])
def test_sizes_that_the_kernel_decides(shape: tuple[int], static: bool) -> None:
    op = operator("positive")
    x = np.array([1, -1, 2, -2, 3], "float32")[: shape[0]]
    for given in (x, -x):
        stated = [shape if static else ("n",)]
        found = results(compiled(model(op, [given], shapes=stated), op), [given])
        np.testing.assert_array_equal(found[0], given[given > 0])
        np.testing.assert_array_equal(found[1], np.nonzero(given > 0)[0])


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
@pytest.mark.parametrize("static", [True, False])
def test_empty_tensors(shape: tuple[int, int], static: bool) -> None:
    op = operator("row_sums")
    loaded = compiled(model(op, [np.zeros(shape, "float32")], shapes=[shape if static else ("a", "b")]), op)
    found = results(loaded, [np.zeros(shape, "float32")])[0]
    np.testing.assert_array_equal(found, np.zeros(shape[0]))


def test_sizes_that_do_not_fit_are_refused_when_the_model_is_read() -> None:
    op = operator("affine")
    inputs = [np.zeros((2, 3), "float32"), np.zeros(4, "float32")]
    message = 'ortt::affine: input `shift` has shape (4,); its definition is "k", and k is 3 here, from `x`.'
    with pytest.raises(Exception, match=re.escape(message)):
        read(model(op, inputs), op)
    with pytest.raises(Exception, match=re.escape("ortt::windows: output `out` would have size -1")):
        inferred("windows", [(1, 3)])


def test_sizes_that_do_not_fit_are_refused_in_a_call() -> None:
    op = operator("affine")
    inputs = [np.zeros((2, 3), "float32"), np.zeros(4, "float32")]
    loaded = compiled(model(op, inputs, shapes=[("n", "k"), ("k2",)]), op)
    message = 'ortt::affine: input `shift` has shape (4,); its definition is "k", and k is 3 here, from `x`.'
    with pytest.raises(Exception, match=re.escape(message)):
        results(loaded, inputs)
    fitting = [inputs[0], np.ones(3, "float32")]
    np.testing.assert_array_equal(results(loaded, fitting)[0], np.ones((2, 3)))
