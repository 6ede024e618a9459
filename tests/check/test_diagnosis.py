"""What is said of wrong numbers holds: it is tried out on calls that no earlier one has changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import oneop
from oneop.check import diagnosis, transforms
from oneop.check.cases import Case
from oneop.check.columns import Eager
from oneop.check.drawing import Focus, sample
from oneop.check.properties import compared
from oneop.check.session import QUICK, Session
from oneop.check.subject import Call, Subject, subject_of

GRADIENT = "With the same incoming gradient in contiguous memory the answer is right"
CHANGED = "The call changes its input x. The kernel works in place"


@pytest.fixture(scope="module")
def subject() -> Subject:
    @oneop.op("diagnosis::square")
    def square(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return x * x

    return subject_of(square)


def squared(slope: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """x * x, with ``slope`` in the place of its gradient."""

    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return slope(grad, ctx.saved_tensors[0])

    return Squared.apply


def said(
    subject: Subject, kernel: Callable[[Tensor], Tensor], transform: transforms.Transform, layout: str
) -> set[str | None]:
    """What is said of those of 40 calls that come out wrong, as if ``kernel`` were the operator's."""

    class Given(Eager):
        def call(self, case: Case) -> Call:
            return lambda inputs, attributes: kernel(*inputs)

    column = Given(subject)
    session = Session(subject, [column], None, QUICK, 0)
    cases = sample(subject.space.cases(Focus(sizes=("several",), layouts=(layout,), styles=("random",))), 40, 0)
    found = [compared(session, column, "row", transform, None, case) for case in cases]
    wrong = [finding for finding in found if finding is not None]
    assert len(wrong) > 2
    return {finding.explain() for finding in wrong if finding.explain is not None}


def test_a_gradient_that_is_wrong_for_stride_0(subject: Subject) -> None:
    kernel = squared(lambda grad, x: 2 * x * grad if grad.stride(0) else 0.5 * x * x + 1)
    texts = said(subject, kernel, transforms.gradient, "contiguous")
    assert [str(text).partition(",")[0] for text in texts] == [GRADIENT.partition(",")[0]]
    assert all(str(text).startswith(GRADIENT) for text in texts)


def test_a_gradient_that_is_wrong_for_some_values_has_nothing_to_do_with_strides(subject: Subject) -> None:
    kernel = squared(lambda grad, x: 2 * x * grad if float(grad[0]) > 0 else 0.5 * x * x + 1)
    texts = said(subject, kernel, transforms.gradient, "contiguous")
    assert not any("contiguous" in str(text) for text in texts), texts


def test_a_kernel_that_changes_its_inputs(subject: Subject) -> None:
    def once(x: Tensor) -> Tensor:
        """Wrong below 0, where there is nothing the next time."""
        out = x * x + 3 * x * (x < 0)
        x.detach().copy_(x.detach().abs().clone())
        return out

    for layout in ("contiguous", "offset", "padded", "sliced"):
        texts = said(subject, once, transforms.values, layout)
        assert all(str(text).startswith(CHANGED) for text in texts), texts


def test_an_output_that_does_not_depend_on_the_inputs_that_are_asked_for() -> None:
    class Two(NamedTuple):
        left: Float[Tensor, "n"]
        right: Float[Tensor, "n"]

    @oneop.op("diagnosis::apart")
    def apart(a: Float[Tensor, "n"], b: Float[Tensor, "n"]) -> Two:
        return Two(a**2, b**3)

    @apart.gradient
    def apart_grad(grad_left, grad_right, a, b):
        return 2 * a * grad_left, 3 * b * b * grad_right

    subject = subject_of(apart)
    column = Eager(subject)
    session = Session(subject, [column], None, QUICK, 0)
    for case in sample(subject.space.cases(Focus(sizes=("several",))), 40, 0):
        for transform in (transforms.gradient, transforms.second_gradient):
            assert compared(session, column, "row", transform, None, case) is None


def test_one_wrong_element_is_not_said_to_be_an_attributes() -> None:
    """Its number is also that of alpha=-1.0, and of much else; of several elements only a wrong sign gives all."""

    @oneop.op("diagnosis::shifted")
    def shifted(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
        return alpha * x

    subject = subject_of(shifted)
    for elements, expected in ((1, []), (5, ["These are the numbers for alpha=-2.0 instead of 2.0"])):
        x = torch.arange(1.0, elements + 1, dtype=torch.float64)
        case = sample(subject.space.cases(Focus(sizes=("several",))), 1, 0)[0].with_inputs([x])
        case = replace(case, attributes={"alpha": 2.0})
        texts = diagnosis._other_attributes(subject, transforms.values, case, [("out", -2 * x)])
        assert [text.partition(":")[0] for text in texts] == expected


@pytest.mark.parametrize(("size", "said"), [(2, 0), (3, 1)])
def test_the_half_of_two_elements_is_no_edge(size: int, said: int) -> None:
    wrong = torch.zeros(size, dtype=torch.bool)
    wrong[-1] = True
    assert len(list(diagnosis._edge(wrong, "wrong"))) == said
