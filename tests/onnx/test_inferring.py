"""onnx's shape inference asks our schema: types and shapes of outputs, from the definition's dimensions."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import onnx
import pytest
from jaxtyping import Bool, Float, Int64, Shaped
from onnx import TensorProto, helper
from torch import Tensor

import oneop
from oneop.targets.onnx import schemas


class Two(NamedTuple):
    values: Float[Tensor, "*batch k"]
    places: Int64[Tensor, "*batch 2*k+1"]


@oneop.op("inferring::window")
def window(
    x: Float[Tensor, "n h"], *, size: int, pad: int = 0, stride: int = 1
) -> Float[Tensor, "n (h+2*pad-size)//stride+1"]:
    return x


@oneop.op("inferring::two")
def two(x: Float[Tensor, "*batch k"], mask: Bool[Tensor, "k"] | None = None) -> Two:
    return Two(x, x)


@oneop.op("inferring::joined")
def joined(xs: list[Shaped[Tensor, "n _"]]) -> Shaped[Tensor, "n"]:
    return xs[0][:, 0]


@oneop.op("inferring::found")
def found(x: Float[Tensor, "n"], *, flag: bool = False) -> Float[Tensor, "?m 3"]:
    return x


FLOAT, HALF, LONG, TRUTH = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL
Input = tuple[int, Sequence[int | str | None] | None] | None


def inferred(
    operator: oneop.Operator, inputs: Sequence[Input], **attributes: int
) -> list[tuple[int, list[int | str] | None]]:
    """Element type and shape of each output; onnx gives a size that nobody knows a name of its own, left out here."""
    definition = operator.definition
    schemas.register(definition)
    names = ["" if item is None else f"x{index}" for index, item in enumerate(inputs)]
    outputs = [item.name for item in definition.outputs]
    node = helper.make_node(definition.onnx_name, names, outputs, domain=definition.namespace, **attributes)
    stated = [helper.make_tensor_value_info(name, *item) for name, item in zip(names, inputs, strict=True) if item]
    copies = [helper.make_node("Identity", [name], [f"{name}_copy"]) for name in outputs]
    ends = [helper.make_tensor_value_info(f"{name}_copy", TensorProto.UNDEFINED, None) for name in outputs]
    graph = helper.make_graph([node, *copies], "g", stated, ends)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(definition.namespace, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    types = {item.name: item.type.tensor_type for item in onnx.shape_inference.infer_shapes(model).graph.value_info}
    return [
        (
            types[name].elem_type,
            (
                [
                    dim.dim_value if dim.HasField("dim_value") else re.sub(r"^unk__\d+$", "", dim.dim_param)
                    for dim in types[name].shape.dim
                ]
                if types[name].HasField("shape")
                else None
            ),
        )
        for name in outputs
        if name in types
    ]


@pytest.mark.parametrize(
    ("inputs", "attributes", "wanted"),
    [
        ([(FLOAT, ["rows", 10])], {"size": 3}, [(FLOAT, ["rows", 8])]),
        ([(HALF, [4, 10])], {"size": 3, "pad": 1, "stride": 2}, [(HALF, [4, 5])]),
        ([(FLOAT, [4, "width"])], {"size": 3}, [(FLOAT, [4, ""])]),
        ([(FLOAT, None)], {"size": 3}, [(FLOAT, ["", ""])]),
        ([(FLOAT, [4, 1])], {"size": 3}, [(FLOAT, [4, ""])]),  # no size can be negative: the node will fail
        ([(FLOAT, [4, 10, 2])], {"size": 3}, [(FLOAT, ["", ""])]),  # no call of this operator
    ],
)
def test_expressions(inputs: list[Input], attributes: dict[str, int], wanted: object) -> None:
    assert inferred(window, inputs, **attributes) == wanted


def test_leading_dimensions_absent_inputs_and_fixed_types() -> None:
    assert inferred(two, [(FLOAT, ["a", 2, 5]), (TRUTH, [5])]) == [(FLOAT, ["a", 2, 5]), (LONG, ["a", 2, 11])]
    assert inferred(two, [(FLOAT, [5])]) == [(FLOAT, [5]), (LONG, [11])]
    assert inferred(two, [(FLOAT, None), (TRUTH, [5])]) == [(FLOAT, None), (LONG, None)]
    # A number from one input goes before a name from another.
    assert inferred(two, [(FLOAT, ["k"]), (TRUTH, [5])]) == [(FLOAT, [5]), (LONG, [11])]
    # Two numbers may differ in a branch that is never taken.
    assert inferred(two, [(FLOAT, [4]), (TRUTH, [5])]) == [(FLOAT, [4]), (LONG, [9])]


def test_lists_and_sizes_that_only_the_kernel_knows() -> None:
    assert inferred(joined, [(LONG, [3, 1]), (LONG, ["n", 2])]) == [(LONG, [3])]
    assert inferred(found, [(FLOAT, [3])], flag=1) == [(FLOAT, ["", 3])]
