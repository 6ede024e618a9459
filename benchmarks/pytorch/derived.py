"""A derived gradient against torch.utils.checkpoint of the reference: both run the reference again in backward."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import oneop
from benchmarks.measure import Row, compare

SIZES = (16, 65536)


def reference(
    x: Float[Tensor, "*batch n"], w: Float[Tensor, "*batch n"], *, alpha: float = 1.0
) -> Float[Tensor, "*batch n"]:
    """Arithmetic that a compiler vectorises as torch does, so that the two sides differ in the gradient only."""
    return alpha * x * w * w + x


in_python = oneop.op("bench::derived_python")(reference)
native = oneop.op("bench::derived", kernels=["derived.cpp"])(reference)


def rows() -> list[Row]:
    """Forward and backward, in Python and with a kernel, for each size."""
    return [
        Row(
            f"a derived gradient, {kind}, {size} floats",
            "torch.utils.checkpoint",
            compare(_training(op, size), _training(_checkpointed, size), count=max(20, 100_000 // (size + 200))),
            1.15,
        )
        for kind, op in (("in Python", in_python), ("native", native))
        for size in SIZES
    ]


def _checkpointed(x: Tensor, w: Tensor, *, alpha: float) -> Tensor:
    out: Tensor = checkpoint(reference, x, w, alpha=alpha, use_reentrant=False)
    return out


def _training(function: Callable[..., Tensor], size: int) -> Callable[[int], None]:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(size, generator=generator).requires_grad_() for _ in range(2))
    gradient = torch.ones(size)
    _check_same(function, (x, w), gradient)

    def run(count: int) -> None:
        for _ in range(count):
            torch.autograd.grad(function(x, w, alpha=2.0), (x, w), gradient)

    return run


def _check_same(function: Callable[..., Tensor], inputs: Sequence[Tensor], gradient: Tensor) -> None:
    """Both sides compute the same numbers, or the comparison means nothing."""
    mine, theirs = function(*inputs, alpha=2.0), reference(*inputs, alpha=2.0)
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(
        torch.autograd.grad(mine, inputs, gradient), torch.autograd.grad(theirs, inputs, gradient)
    )
