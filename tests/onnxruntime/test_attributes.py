"""Attributes: every kind, written or missing, right or wrong."""

import re
from typing import Any

import numpy as np
import pytest

from support.ort_models import RELEASE, assert_right, model, operator, session

X = np.array([0.5, -2.0], "float64")


def test_missing_attributes_take_the_definitions_defaults() -> None:
    assert_right(operator("attributes"), [X])


@pytest.mark.parametrize(
    "written",
    [
        {"ratio": -0.25},
        {"ratio": 2},
        {"count": -7},
        {"count": 2**62},
        {"flag": 1},
        {"text": ""},
        {"text": 'quotes " and \\ and ünicode'},
        {"mode": "general"},
        {"level": 2},
        {"ratios": [0.5, -1.25, 8.0]},
        {"ratios": [1, 2, 3]},
        {"counts": [1]},
        {"counts": [2**40, -1, 0]},
        {"maybe_ratio": 0.0},
        {"maybe_ratio": 3},
        {"maybe_count": 0},
        {"maybe_text": ""},
        {"maybe_text": "some"},
        {"maybe_counts": [1, 2]},
        {"ratio": 0.125, "count": 9, "flag": 1, "text": "t", "ratios": [2.5], "counts": [6, 7], "maybe_count": -3},
    ],
    ids=str,
)
def test_written_attributes(written: dict[str, Any]) -> None:
    assert_right(operator("attributes"), [X], **written)


def test_empty_lists() -> None:
    made = model(operator("attributes"), [X])
    for name, kind in (("ratios", 6), ("counts", 7), ("maybe_counts", 7)):
        made.graph.node[0].attribute.add(name=name, type=kind)
    values = session(made).run(None, {"x0": X})[0] - X[:, None]
    np.testing.assert_array_equal(values[:, [6, 7, 8, 9, 13]], 0)


def test_a_string_with_a_zero_inside() -> None:
    made = model(operator("attributes"), [X], {"text": b"a\0b"})
    assert session(made).run(None, {"x0": X})[0][0, 3] - X[0] == ord("a") + ord("b")


def test_a_required_attribute() -> None:
    assert_right(operator("required"), [X], scale=1.5)
    with pytest.raises(Exception, match="has no attribute") as caught:
        session(model(operator("required"), [X]))
    assert (
        "ortt::required: node `the_node` has no attribute `scale`, and the definition gives it no default. Write it on "
        "the node, as FLOAT (or INT)." in str(caught.value)
    )


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ({"ratio": "half"}, "FLOAT (or INT)"),
        ({"ratio": [0.5]}, "FLOAT (or INT)"),
        ({"count": 1.5}, "INT"),
        ({"count": [1, 2]}, "INT"),
        ({"flag": "yes"}, "INT"),
        ({"text": 3}, "STRING"),
        ({"text": ["a", "b"]}, "STRING"),
        ({"ratios": 1.5}, "FLOATS (or INTS)"),
        ({"ratios": 2}, "FLOATS (or INTS)"),
        ({"ratios": "1.5"}, "FLOATS (or INTS)"),
        ({"counts": [1.5, 2.5]}, "INTS"),
        ({"counts": 4}, "INTS"),
        ({"maybe_counts": [0.5]}, "INTS"),
    ],
    ids=str,
)
def test_attributes_of_the_wrong_kind(written: dict[str, Any], kind: str) -> None:
    name = next(iter(written))
    with pytest.raises(Exception, match="wrong kind") as caught:
        session(model(operator("attributes"), [X], written))
    message = f"ortt::attributes: attribute `{name}` of node `the_node` has the wrong kind. Write it as {kind}."
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"mode": "cosine"}, '`mode` of node `the_node` is "cosine"; it must be one of "dot", "general".'),
        ({"level": 3}, "`level` of node `the_node` is 3; it must be one of 1, 2."),
    ],
    ids=str,
)
def test_choices(written: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=re.escape(f"ortt::attributes: attribute {said}")):
        session(model(operator("attributes"), [X], written))


def test_a_list_of_strings() -> None:
    """Runtimes before 1.25 show such a list to shape inference only, so a process can use one value there."""
    assert_right(operator("labels"), [X], names=["one", "", "three"])
    if RELEASE >= (1, 25):
        assert_right(operator("labels"), [X], names=["other"])
        assert_right(operator("labels"), [X])
        with pytest.raises(Exception, match="has the wrong kind"):
            session(model(operator("labels"), [X], {"names": "one"}))
        return
    assert_right(operator("labels"), [X], names=["one", "", "three"])
    assert_right(operator("labels"), [X])
    with pytest.raises(Exception, match="once a process has met several") as caught:
        session(model(operator("labels"), [X], {"names": ["other"]}))
    assert "Install onnxruntime 1.25 or newer." in str(caught.value)
