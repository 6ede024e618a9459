"""Every attribute is on the node, with its kind and value, defaults too."""

import copy
from typing import Any, Literal

import onnx
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import oneop
from support.onnx_checks import attributes, export_and_compare, export_quietly, own_attributes, require_attributes


@oneop.op("onnx_attributes::kinds")
def kinds(
    x: Float[Tensor, "n"],
    *,
    a_float: float = 0.1,
    an_int: int = 3,
    a_bool: bool = True,
    a_str: str = "Grüße, 世界",
    floats: list[float] = [0.5, 0.25],  # noqa: B006
    ints: list[int] = [1, -2],  # noqa: B006
    strings: list[str] = ["a", "ß"],  # noqa: B006
    no_floats: list[float] = [],  # noqa: B006
    no_ints: list[int] = [],  # noqa: B006
    no_strings: list[str] = [],  # noqa: B006
    choice: Literal["near", "far"] = "near",
    maybe_float: float | None = None,
    maybe_int: int | None = 4,
    maybe_str: str | None = None,
    needed: int,
) -> Float[Tensor, "n"]:
    """Uses every attribute, so that a wrong one gives wrong numbers."""
    y = a_float * x + an_int + len(a_str) + sum(floats) + sum(ints) + len("".join(strings)) + needed
    y = y + 100 * (len(no_floats) + len(no_ints) + len(no_strings))
    y = y * 2 if a_bool else y
    y = y - 1 if choice == "near" else y
    y = y if maybe_float is None else y * maybe_float
    y = y if maybe_int is None else y + maybe_int
    return y if maybe_str is None else y + len(maybe_str)


DEFAULTS: dict[str, Any] = {
    "a_float": 0.1,
    "an_int": 3,
    "a_bool": 1,
    "a_str": "Grüße, 世界",
    "floats": [0.5, 0.25],
    "ints": [1, -2],
    "strings": ["a", "ß"],
    "no_floats": [],
    "no_ints": [],
    "no_strings": [],
    "choice": "near",
    "maybe_int": 4,
}
OTHERS: dict[str, Any] = {
    "a_float": 2.0,
    "an_int": -7,
    "a_bool": 0,
    "a_str": "",
    "floats": [],
    "ints": [5],
    "strings": [],
    "no_floats": [1.0],
    "no_ints": [2, 3],
    "no_strings": ["x"],
    "choice": "far",
    "maybe_float": 1.5,
    "maybe_int": 9,
    "maybe_str": "ö",
}


class Kinds(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = kinds(x, needed=1)
        return kinds(y, needed=2, **{**OTHERS, "a_bool": False})


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    examples = [(torch.randn(3),), (torch.randn(5),)]
    return export_and_compare(
        Kinds(),
        examples,
        tmp_path_factory.mktemp("kinds"),
        dynamic_shapes=({0: "n"},),
        fallbacks=("inline", "function"),
    )


def test_every_attribute_is_written_with_defaults_too(exported: Any) -> None:
    first, second = exported.nodes(kinds)
    require_attributes(first, {**DEFAULTS, "needed": 1})
    require_attributes(second, {**OTHERS, "needed": 2})


def test_kinds_are_onnx_kinds(exported: Any) -> None:
    kind = {item.name: onnx.AttributeProto.AttributeType.Name(item.type) for item in exported.nodes(kinds)[0].attribute}
    assert kind == {
        "a_float": "FLOAT",
        "an_int": "INT",
        "a_bool": "INT",
        "a_str": "STRING",
        "floats": "FLOATS",
        "ints": "INTS",
        "strings": "STRINGS",
        "no_floats": "FLOATS",
        "no_ints": "INTS",
        "no_strings": "STRINGS",
        "choice": "STRING",
        "maybe_int": "INT",
        "needed": "INT",
    }


@pytest.mark.parametrize("name", [*DEFAULTS, "needed"])
def test_the_check_of_attributes_fails_where_one_is_dropped(exported: Any, name: str) -> None:
    node = copy.deepcopy(exported.nodes(kinds)[0])
    (position,) = [index for index, item in enumerate(node.attribute) if item.name == name]
    del node.attribute[position]
    with pytest.raises(AssertionError):
        require_attributes(node, {**DEFAULTS, "needed": 1})


def test_one_function_serves_both_nodes(exported: Any) -> None:
    assert [(function.domain, function.name, function.overload) for function in exported.proto.functions] == [
        ("onnx_attributes", "Kinds", "")
    ]
    assert [node.overload for node in exported.nodes(kinds)] == ["", ""]


@oneop.op("onnx_attributes::scale")
def scale(x: Float[Tensor, "n"], *, by: float = 1.0) -> Float[Tensor, "n"]:
    return x * by


class Scale(torch.nn.Module):
    def __init__(self, by: Any) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return scale(x, by=self.by)


def test_an_integer_for_a_float_attribute_is_written_as_a_float(tmp_path: Any) -> None:
    exported = export_and_compare(Scale(3), [(torch.randn(4),)], tmp_path)
    (node,) = exported.nodes(scale)
    assert attributes(node) == {"by": 3.0}
    assert node.attribute[0].type == onnx.AttributeProto.FLOAT


def test_a_negative_zero_and_an_infinity_stay_what_they_are(tmp_path: Any) -> None:
    for value in (-0.0, float("inf")):
        export_and_compare(Scale(value), [(torch.tensor([1.0, -2.0]),)], tmp_path)


@oneop.op("onnx_attributes::divide")
def divide(x: Float[Tensor, "n"], *, by: float = 1.0, parts: list[float]) -> Float[Tensor, "n"]:
    return x / by + x / torch.tensor(parts).to(x)


def test_two_zeros_in_one_model_stay_apart(tmp_path: Any) -> None:
    """To torch's optimizer two nodes that differ in the sign of a zero only are the same."""

    class Zeros(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            zero = divide(x, by=0.0, parts=[0.0])
            return zero, divide(x, by=-0.0, parts=[-0.0]), divide(x, by=0.0, parts=[0.0])

    export_and_compare(Zeros(), [(torch.tensor([1.0, -2.0]),)], tmp_path, fallbacks=("inline",))
    exported = export_quietly(Zeros().eval(), (torch.tensor([1.0, -2.0]),), tmp_path / "model.onnx", fallback="none")
    nodes = [node for node in exported.model_proto.graph.node if node.domain == "onnx_attributes"]
    assert sorted(str(own_attributes(node)) for node in nodes) == [
        "{'by': -0.0, 'parts': [-0.0]}",
        "{'by': 0.0, 'parts': [0.0]}",
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            1e300,
            "onnx_attributes::scale: attribute `by` is 1e+300; ONNX keeps floats in 32 bits, whose largest is 3.4e38. "
            "Export with a smaller value.",
        ),
        (
            1e-60,
            "onnx_attributes::scale: attribute `by` is 1e-60; ONNX keeps floats in 32 bits, where that is zero. "
            "Export with a larger value.",
        ),
    ],
)
def test_a_float_that_onnx_cannot_keep_is_refused(tmp_path: Any, value: float, message: str) -> None:
    with pytest.raises(oneop.ExportError) as caught:
        export_quietly(Scale(value), (torch.randn(4),), tmp_path / "model.onnx")
    assert str(caught.value) == message
    assert list(tmp_path.iterdir()) == []


def test_none_where_the_default_is_another_value_is_refused(tmp_path: Any) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return kinds(x, needed=1, maybe_int=None)

    with pytest.raises(oneop.ExportError) as caught:
        export_quietly(Model(), (torch.ones(3),), tmp_path / "model.onnx")
    assert (
        "onnx_attributes::kinds: attribute `maybe_int` is None in this call, and its default is 4. ONNX says None by"
        " leaving an attribute out, which means the default. Give `maybe_int` the default None."
    ) in str(caught.value)
    assert not list(tmp_path.iterdir())
