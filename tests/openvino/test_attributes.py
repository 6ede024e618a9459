"""Every kind of attribute, from an ONNX file and through OpenVINO's own format."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest
from onnx import AttributeProto, helper

from oneop.targets.openvino import compile_model, core
from support.ort_models import reference
from support.ov_models import compiled, model, more, operator, read, results, run

X = np.arange(3, dtype="float32")
TEXT = "a \"b\", \\ <c> & 'd' \n\t é 日"

CASES: list[tuple[str, dict[str, Any]]] = [
    ("attributes", {}),
    ("attributes", {"ratio": 2, "count": -(2**40), "flag": True, "mode": "general", "level": 2}),
    ("attributes", {"ratio": 0.1, "text": TEXT}),
    ("attributes", {"text": "", "ratios": [], "counts": [], "maybe_ratio": -0.0, "maybe_count": 0, "maybe_text": ""}),
    ("attributes", {"ratios": [0.1, 1e-30, 3e37], "counts": [-(2**62), 5], "maybe_counts": [], "maybe_text": "null"}),
    ("attributes", {"ratios": [1, 2], "maybe_counts": [7], "maybe_ratio": 1e30}),
    ("labels", {}),
    ("labels", {"names": ["a, b", '"', "", "]", TEXT]}),
    ("labels", {"names": []}),
    ("required", {"scale": 2.5}),
]


def node_attributes(values: dict[str, Any]) -> dict[str, Any]:
    """As ``helper.make_node`` takes them; it cannot tell of which kind an empty list is."""
    return {name: value for name, value in values.items() if value != []}


def made(base: str, values: dict[str, Any]) -> onnx.ModelProto:
    op = operator(base)
    written = model(op, [X], node_attributes(values))
    for name, value in values.items():
        if value == []:
            kind = AttributeProto.AttributeType.Value(op.definition.attribute(name).kind.onnx)
            written.graph.node[0].attribute.append(helper.make_attribute(name, value, attr_type=kind))
    return written


def expected(base: str, values: dict[str, Any]) -> np.ndarray:
    """ONNX keeps floats in 32 bits."""
    op = operator(base)
    given = {item.name: item.default for item in op.definition.attributes if not item.is_required}
    for name, value in values.items():
        if op.definition.attribute(name).kind.element is float:
            value = np.float32(value).astype(float).tolist()
        given[name] = value
    return reference(op, [X], {name: list(v) if isinstance(v, tuple) else v for name, v in given.items()})[0]


@pytest.mark.parametrize(("base", "values"), CASES)
def test_from_onnx_and_through_saved_models(base: str, values: dict[str, Any], tmp_path: Path) -> None:
    op = operator(base)
    loaded = read(made(base, values), op)
    openvino.save_model(loaded, tmp_path / "saved.xml")
    exact = expected(base, values).astype("float32")
    np.testing.assert_array_equal(results(compiled(made(base, values), op), [X])[0], exact)
    again = compile_model(tmp_path / "saved.xml", op)
    np.testing.assert_array_equal(results(again, [X])[0], exact)
    twice = core(op).read_model(tmp_path / "saved.xml")
    assert attributes_of(twice) == attributes_of(loaded)


def attributes_of(loaded: openvino.Model) -> dict[str, Any]:
    (node,) = [node for node in loaded.get_ops() if node.get_type_name().startswith("ortt::")]
    return dict(node.get_attributes())


def test_what_a_saved_model_says(tmp_path: Path) -> None:
    op = operator("attributes")
    loaded = read(made("attributes", {"ratio": 0.1, "counts": [3], "maybe_text": "x"}), op)
    found = attributes_of(loaded)
    assert found.pop("oneop.fingerprint") == op.definition.fingerprint
    assert found == {
        "oneop.inputs": "[1]",
        "oneop.dtypes": '["float32"]',
        "ratio": "0.10000000149011612",
        "count": "3",
        "flag": "false",
        "text": '"a \\"b\\"?"',
        "mode": '"dot"',
        "level": "1",
        "ratios": "[1.5, 0.25]",
        "counts": "[3]",
        "maybe_ratio": "null",
        "maybe_count": "null",
        "maybe_text": '"x"',
        "maybe_counts": "null",
    }


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 5e-324, 2**-149, np.pi])
def test_floats_keep_every_bit_in_saved_models(value: float, tmp_path: Path) -> None:
    loaded = read(made("required", {"scale": value}), operator("required"))
    openvino.save_model(loaded, tmp_path / "saved.xml")
    (outcome,) = results(compile_model(tmp_path / "saved.xml", operator("required")), [np.ones(3, "float32")])
    np.testing.assert_array_equal(outcome, np.full(3, np.float32(value)))


def test_attributes_named_as_those_of_a_constant(tmp_path: Path) -> None:
    """OpenVINO reads a constant, and asks for its weights, where a node has all three."""
    op = more("placed")
    loaded = read(model(op, [X], {"element_type": "odd", "size": 3, "offset": 40}), op)
    openvino.save_model(loaded, tmp_path / "saved.xml")
    np.testing.assert_array_equal(results(compile_model(tmp_path / "saved.xml", op), [X])[0], X * 3 + 43)


def test_a_required_attribute_that_is_missing() -> None:
    message = (
        "ortt::required: node `the_node` has no attribute `scale`, and the definition gives it no default. Write it on"
        " the node, as a float."
    )
    with pytest.raises(Exception, match=re.escape(message)):
        read(made("required", {}), operator("required"))


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"ratio": "x"}, "`ratio` of node `the_node` has the wrong kind. Write it as a float."),
        ({"count": 1.5}, "`count` of node `the_node` has the wrong kind. Write it as an int."),
        ({"text": 1}, "`text` of node `the_node` has the wrong kind. Write it as a string."),
        ({"counts": [1.5]}, "`counts` of node `the_node` has the wrong kind. Write it as a list of ints."),
        ({"ratios": 1.5}, "`ratios` of node `the_node` has the wrong kind. Write it as a list of floats."),
    ],
)
def test_an_attribute_of_another_kind(values: dict[str, Any], wanted: str) -> None:
    with pytest.raises(Exception, match=re.escape("ortt::attributes: attribute " + wanted)):
        read(made("attributes", values), operator("attributes"))


def test_a_value_that_is_not_one_of_the_choices() -> None:
    with pytest.raises(Exception, match=r"ortt::attributes: .*`mode`.*cosine"):
        read(made("attributes", {"mode": "cosine"}), operator("attributes"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('count="3"', 'count="three"', "attribute `count` is three in the model. It is an int, as JSON."),
        ('counts="[4, -5]"', 'counts="[4, -5"', "attribute `counts` is [4, -5 in the model."),
        ('ratio="0.5"', 'ratio="1e999"', "attribute `ratio` is 1e999 in the model."),
        ('flag="false"', 'flag="False"', "attribute `flag` is False in the model. It is a bool, as JSON."),
        (
            'oneop.inputs="[1]"',
            'oneop.inputs="[9999999]"',
            "has 1 inputs, and its `oneop.inputs` says [9999999]. Read",
        ),
        ('oneop.inputs="[1]"', 'oneop.inputs="[0]"', "has no input `x`, which is not optional"),
        ('oneop.inputs="[1]"', 'oneop.inputs="[-1, 2]"', "has no input `x`, which is not optional"),
        ('oneop.inputs="[1]"', 'oneop.inputs="x"', "attribute `oneop.inputs` is x in the model."),
        ("[&quot;float32&quot;]", "[&quot;int8&quot;]", 'attribute `oneop.dtypes` is ["int8"] in the model.'),
        (
            "[&quot;float32&quot;]",
            "[&quot;float32&quot;, 1]",
            'attribute `oneop.dtypes` is ["float32", 1] in the model.',
        ),
        ("[&quot;float32&quot;]", "[&quot;\\u1&quot;]", "attribute `oneop.dtypes` is"),
        ("[&quot;float32&quot;]", "[&quot;float16&quot;]", "holds no kernel for that"),
    ],
)
def test_a_saved_model_that_somebody_edited(old: str, new: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "saved.xml"
    openvino.save_model(read(made("attributes", {}), operator("attributes")), file)
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    with pytest.raises(Exception, match=re.escape(said)):
        core(operator("attributes")).read_model(file)


def test_a_node_that_says_nothing_has_the_defaults() -> None:
    np.testing.assert_array_equal(run(operator("labels"), [X])[0], expected("labels", {}).astype("float32"))
