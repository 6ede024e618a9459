"""torch.library.opcheck on every operator of the examples, with gradients and without an optional input."""

from typing import Any

import pytest
import torch
from luong_attention import attend, concat_score
from scaled_linear_c.scaled_linear import scaled_linear as in_c
from scaled_linear_cpp.scaled_linear import scaled_linear as in_cpp
from scaled_linear_cuda.scaled_linear import scaled_linear as in_cuda
from scaled_linear_python.scaled_linear import scaled_linear as in_python

import oneop


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


CALLS = [
    *(
        (op, (randn(3, 4), randn(5, 4), bias), {"alpha": 2.0})
        for op in (in_python, in_cpp, in_c, in_cuda)
        for bias in (randn(5), None)
    ),
    (concat_score, (randn(2, 3), randn(2, 4, 5), randn(6, 8), randn(6)), {}),
    (attend, (randn(2, 4), randn(2, 4, 5), torch.tensor([4, 2])), {}),
    (attend, (randn(2, 4), randn(2, 4, 5)), {}),
]


@pytest.mark.parametrize(("op", "inputs", "attributes"), CALLS)
def test_opcheck(op: oneop.Operator, inputs: tuple[Any, ...], attributes: dict[str, Any]) -> None:
    torch.library.opcheck(op.torch_op, inputs, attributes)


def test_every_operator_of_the_examples_is_checked() -> None:
    files = {op.defined_in for op, _, _ in CALLS}
    defined = {item for path in files for item in oneop.registry.defined_in(path) if not item.definition.is_gradient}
    assert defined == {op for op, _, _ in CALLS}
