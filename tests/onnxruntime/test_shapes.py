"""Shapes known when the model is loaded, and sizes refused then."""

from typing import Any

import numpy as np
import pytest

from support.ort_models import RELEASE, feeds, model, operator, session

ABSENT_INPUTS = RELEASE >= (1, 24)
"""Before, ONNX Runtime crashed in the shape inference of a node with an absent input; oneop offers none there."""


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, "float32")


def shapes(base: str, inputs: list[Any], stated: list[Any], attributes: dict[str, Any] | None = None) -> list[Any]:
    made = model(operator(base), inputs, attributes, shapes=stated)
    return [output.shape for output in session(made).get_outputs()]


@pytest.mark.parametrize(
    ("stated", "attributes", "expected"),
    [
        ((9, 2), {}, [7, 4]),
        ((9, 2), {"kernel": 2, "stride": 2}, [4, 4]),
        (("rows", 2), {}, ["(rows-3)//1+1", 4]),
        ((9, "columns"), {"stride": 3}, [3, "2*columns"]),
        (("a+b", "c"), {}, ["((a+b)-3)//1+1", "2*c"]),
    ],
    ids=str,
)
def test_computed_dimensions(stated: tuple[Any, ...], attributes: dict[str, Any], expected: list[Any]) -> None:
    assert shapes("windows", [zeros(9, 2)], [stated], attributes) == [expected]


def test_names_are_carried_on() -> None:
    assert shapes("totals", [zeros(4, 3)] * 2, [("batch", 3), ("batch", 3)]) == [["batch", 3], [1], ["batch"]]
    assert shapes("row_sums", [zeros(2, 3, 4)], [("batch", "time", 4)]) == [["batch", "time"]]
    assert shapes("gather", [zeros(6), np.zeros(3, "int64")], [("n",), ("picked",)]) == [["picked"]]


def test_one_input_may_know_more_than_another() -> None:
    assert shapes("totals", [zeros(4, 3)] * 2, [("batch", "k"), (4, 3)]) == [[4, 3], [1], [4]]


def test_a_dimension_without_a_name_gets_one_of_its_own() -> None:
    first, second = shapes("positive", [zeros(5)], [(5,)])
    assert first[0].startswith("Positive_values_0_")
    assert second[0].startswith("Positive_positions_0_")
    made = model(operator("nested"), [zeros(4, 3)], shapes=[(None, 3)], copies=2)
    one, two = (output.shape[0] for output in session(made).get_outputs())
    assert one.startswith("Nested_out_0_")
    assert two.startswith("Nested_out_0_")
    assert one != two


def test_absent_inputs() -> None:
    expected = ["n", "k"] if ABSENT_INPUTS else []
    for inputs in ([zeros(4, 3), None, zeros(3)], [zeros(4, 3), None, None], [zeros(4, 3)]):
        stated = [("n", "k"), ("k",)][: sum(item is not None for item in inputs)]
        assert shapes("affine", inputs, stated) == [expected]


def test_an_unknown_rank_leaves_the_output_unknown_and_runs() -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    for base, expected in (("row_sums", x.sum(-1)), ("nested", x + 1)):
        made = session(model(operator(base), [x], shapes=[None]))
        assert made.get_outputs()[0].shape == []
        np.testing.assert_array_equal(made.run(None, feeds([x]))[0], expected)


@pytest.mark.parametrize(
    ("base", "inputs", "said"),
    [
        (
            "affine",
            [zeros(4, 3), zeros(5)],
            'ortt::affine: input `shift` has shape (5,); its definition is "k", and k is 3',
        ),
        (
            "affine",
            [zeros(4)],
            'ortt::affine: input `x` has shape (4,), 1 dimension; its definition is "n k", 2 dimensions',
        ),
        ("totals", [zeros(4, 3), zeros(4, 2)], "ortt::totals: input `xs[1]` has shape (4, 2)"),
        (
            "windows",
            [zeros(1, 2)],
            "ortt::windows: output `out` would have size -1 in dimension 0 ((h-kernel)//stride+1)",
        ),
    ],
    ids=["size", "rank", "variadic", "negative"],
)
def test_sizes_that_do_not_fit(base: str, inputs: list[Any], said: str) -> None:
    """When the model is loaded if it states its sizes, when it runs if it does not."""
    with pytest.raises(Exception, match="ortt") as caught:
        session(model(operator(base), inputs))
    assert said in str(caught.value)

    unstated = [("a", "b", "c")[position : position + item.ndim] for position, item in enumerate(inputs)]
    if base == "affine" and inputs[0].ndim == 1:
        unstated = [None]
    late = session(model(operator(base), inputs, shapes=unstated))
    with pytest.raises(Exception, match="ortt") as caught:
        late.run(None, feeds(inputs))
    assert said in str(caught.value)
    assert "the_node" in str(caught.value)


def test_division_by_zero() -> None:
    with pytest.raises(Exception, match=r"ortt::windows: `.*` divides by zero, with"):
        session(model(operator("windows"), [zeros(9, 2)], {"stride": 0}))
