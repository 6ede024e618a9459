"""The definition of a gradient operator, derived from its operator's and from the function that computes it."""

from typing import NamedTuple

import pytest
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from oneop.definition.gradient import gradient_definition
from oneop.definition.signature import definition_of
from oneop.errors import DefinitionError


class Two(NamedTuple):
    y: Float[Tensor, "n m"]
    count: Int[Tensor, "n"]


def operator(
    x: Float[Tensor, "n _"], i: Int[Tensor, "n"], b: Float[Tensor, "m"] | None = None, *, alpha: float = 1.0
) -> Float[Tensor, "n"]: ...


def several(x: Float[Tensor, "n m"], i: Int[Tensor, "n"]) -> Two: ...


def predicate(x: Float[Tensor, "n"]) -> Bool[Tensor, "n"]: ...


def flip(x: Bool[Tensor, "n"]) -> Float32[Tensor, "n"]: ...


def test_inputs_are_gradients_inputs_and_named_outputs():
    def gradient(grad, x, i, b, out, *, alpha): ...

    found = gradient_definition(definition_of(operator, "demo::f"), gradient)
    assert found.name == "demo::f_grad"
    assert [(i.name, i.arity, str(i.shape)) for i in found.inputs] == [
        ("grad", "required", "n"),
        ("x", "required", "n x_size1"),
        ("i", "required", "n"),
        ("b", "optional", "m"),
        ("out", "required", "n"),
    ]
    assert [(o.name, o.mirrors) for o in found.outputs] == [("grad_x", "x"), ("grad_b", "b")]
    assert [a.name for a in found.attributes] == ["alpha", "needs"]
    assert found.differentiates == ("x", "i", "b")
    assert found.is_gradient
    assert found.onnx_name == "FGrad"


def test_only_floating_outputs_have_a_gradient():
    def gradient(grad_y, x, i, count): ...

    found = gradient_definition(definition_of(several, "demo::f"), gradient)
    assert [i.name for i in found.inputs] == ["grad_y", "x", "i", "count"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i, b, *, alpha: None,
        lambda grad, x, i, *, alpha: None,
        lambda grad, i, x, b, *, alpha: None,
        lambda grad, x, i, b, *, beta: None,
        lambda grad, x, i, b, alpha: None,
        lambda *everything: None,
    ],
)
def test_other_parameters_are_refused(function):
    with pytest.raises(DefinitionError) as caught:
        gradient_definition(definition_of(operator, "demo::f"), function)
    assert "demo::f: the gradient is `<lambda>(" in str(caught.value)
    assert str(caught.value).endswith(
        "Write `(grad, x, i, b, *, alpha)`: the gradients, the inputs, then those of the outputs `out` that it uses; "
        "attributes (and `needs`) as keywords."
    )


@pytest.mark.parametrize(("function", "side"), [(predicate, "output"), (flip, "input")])
def test_without_floating_tensors_there_is_no_gradient(function, side):
    with pytest.raises(DefinitionError, match=f"no {side} is floating, so there is no gradient to write"):
        gradient_definition(definition_of(function, "demo::f"), lambda grad, x: None)


def test_attributes_that_a_gradient_does_not_use_may_be_left_out():
    found = gradient_definition(definition_of(operator, "demo::f"), lambda grad, x, i, b, *, needs: None)
    assert [a.name for a in found.attributes] == ["alpha", "needs"]
