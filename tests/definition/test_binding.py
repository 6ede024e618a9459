"""Sizes against definitions: what binds, what the outputs' shapes are, and what is said where they do not fit."""

from typing import NamedTuple

import pytest
from hypothesis import given
from jaxtyping import Float, Int
from torch import Tensor

from oneop.definition.binding import bind
from oneop.definition.dims import DimError, compute_constants, evaluate
from oneop.definition.gradient import gradient_definition
from oneop.definition.signature import definition_of
from oneop.errors import CallError, DefinitionError
from support.expressions import NAMES, expressions, values


def linear(
    x: Float[Tensor, "*batch k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    pad: int = 0,
    stride: int = 1,
) -> Float[Tensor, "*batch (m+2*pad)//stride"]: ...


LINEAR = definition_of(linear, "demo::linear")
ATTRIBUTES = {"pad": 0, "stride": 1}


def outputs(definition, shapes, attributes):
    binding = bind(definition, shapes, attributes)
    return [shape for item in definition.outputs for shape in binding.output_shapes(item)]


def message(definition, shapes, attributes=ATTRIBUTES):
    with pytest.raises(CallError) as caught:
        outputs(definition, shapes, attributes)
    return str(caught.value)


def test_output_shapes_follow_inputs_and_attributes():
    shapes = {"x": [(2, 3, 4)], "weight": [(5, 4)], "bias": []}
    assert outputs(LINEAR, shapes, {"pad": 2, "stride": 3}) == [(2, 3, 3)]
    assert outputs(LINEAR, {**shapes, "x": [(4,)]}, ATTRIBUTES) == [(5,)]
    assert outputs(LINEAR, {**shapes, "x": [(0, 4)], "bias": [(5,)]}, ATTRIBUTES) == [(0, 5)]


def test_sizes_that_do_not_fit():
    assert (
        message(LINEAR, {"x": [(2, 4)], "weight": [(5, 3)], "bias": []})
        == 'demo::linear: input `weight` has shape (5, 3); its definition is "m k", and k is 4 here, from `x`. '
        "Pass a tensor that fits."
    )
    assert (
        message(LINEAR, {"x": [()], "weight": [(5, 3)], "bias": []})
        == 'demo::linear: input `x` has shape (), 0 dimensions; its definition is "*batch k", at least 1 dimension. '
        "Pass a tensor that fits."
    )
    assert (
        message(LINEAR, {"x": [(2, 4)], "weight": [(4,)], "bias": []})
        == 'demo::linear: input `weight` has shape (4,), 1 dimension; its definition is "m k", 2 dimensions. '
        "Pass a tensor that fits."
    )


def test_results_that_are_no_sizes():
    shapes = {"x": [(2, 4)], "weight": [(5, 4)], "bias": []}
    assert (
        message(LINEAR, shapes, {"pad": -4, "stride": 1})
        == "demo::linear: output `out` would have size -3 in dimension 1 ((m+2*pad)//stride), with m = 5, pad = -4,"
        " stride = 1. Pass inputs and attributes that give a size of 0 or more."
    )
    assert (
        message(LINEAR, shapes, {"pad": 0, "stride": 0})
        == "demo::linear: `(m+2*pad)//stride` divides by zero, with m = 5, pad = 0, stride = 0. "
        "Pass other attributes or inputs."
    )
    assert (
        message(LINEAR, shapes, {"pad": 2**62, "stride": 1})
        == "demo::linear: `2*pad` does not fit 64 bits, with m = 5, pad = 4611686018427387904, stride = 1. "
        "Pass other attributes or inputs."
    )


def test_literal_expression_group_and_variadic_messages():
    def parts(
        a: Float[Tensor, "*batch n 3"], b: Float[Tensor, "*batch n+1"], xs: list[Float[Tensor, "n"]]
    ) -> Float[Tensor, "n"]: ...

    definition = definition_of(parts, "demo::parts")
    good = {"a": [(2, 5, 3)], "b": [(2, 6)], "xs": [(5,), (5,)]}
    assert outputs(definition, good, {}) == [(5,)]
    assert (
        message(definition, {**good, "a": [(2, 5, 4)]}, {})
        == 'demo::parts: input `a` has shape (2, 5, 4); its definition is "*batch n 3". Pass a tensor that fits.'
    )
    assert (
        message(definition, {**good, "b": [(2, 5)]}, {})
        == 'demo::parts: input `b` has shape (2, 5); its definition is "*batch n+1", and n+1 is 6 here. '
        "Pass a tensor that fits."
    )
    for group in [(3, 6), (6,), (2, 2, 6)]:
        assert message(definition, {**good, "b": [group]}, {}).endswith(
            'its definition is "*batch n+1", and *batch is (2,) here, from `a`. Pass a tensor that fits.'
        )
    assert (
        message(definition, {**good, "xs": [(5,), (4,)]}, {})
        == 'demo::parts: input `xs[1]` has shape (4,); its definition is "n", and n is 5 here, from `a`. '
        "Pass a tensor that fits."
    )


@given(expressions, values)
def test_an_output_has_the_value_of_its_expression_or_an_error(expr, scope):
    text = str(expr)
    attributes = {name: scope[name] for name in NAMES[1:]}
    function = _function(text)
    try:
        compute_constants(expr)
    except DimError:
        with pytest.raises(DefinitionError, match="is no size"):
            definition_of(function, "demo::f")
        return
    definition = definition_of(function, "demo::f")
    try:
        wanted = evaluate(expr, scope)
    except DimError:
        wanted = None
    if wanted is not None and wanted >= 0:
        assert outputs(definition, {"x": [(scope["n"],)]}, attributes) == [(wanted,)]
    else:
        assert "demo::f: " in message(definition, {"x": [(scope["n"],)]}, attributes)


def _function(text):
    def f(x, *, k: int, h: int, pad: int, stride: int): ...

    f.__annotations__.update({"x": Float[Tensor, "n"], "return": Float[Tensor, text]})
    return f


class Found(NamedTuple):
    values: Float[Tensor, "?found m"]
    where: Int[Tensor, "?found"]


def test_unknown_sizes_are_none_and_names_in_the_gradient():
    def find(x: Float[Tensor, "n m"], i: Int[Tensor, "_"], ys: list[Float[Tensor, "_"]]) -> Found: ...

    definition = definition_of(find, "demo::find")
    shapes = {"x": [(4, 3)], "i": [(7,)], "ys": [(2,), (9,)]}
    assert outputs(definition, shapes, {}) == [(None, 3), (None,)]

    def find_grad(grad_values, x, i, ys, where): ...

    gradient = gradient_definition(definition, find_grad)
    given = {**shapes, "grad_values": [(2, 3)], "where": [(2,)]}
    assert outputs(gradient, given, {"needs": -1}) == [(4, 3), (2,), (9,)]
    assert (
        message(gradient, {**given, "where": [(3,)]}, {"needs": -1})
        == 'demo::find_grad: input `where` has shape (3,); its definition is "found", and found is 2 here, from'
        " `grad_values`. Pass a tensor that fits."
    )
