"""Operators of every shape that a definition can have, each with the inputs that the tests of transforms use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

import oneop

CPP, C = ["gallery.cpp"], ["gallery.c"]


@oneop.op("gallery::plain")
def plain(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
    return torch.sin(alpha * x) * x


@oneop.op("gallery::written")
def written(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
    return torch.sin(alpha * x) * x


@written.gradient
def written_grad(grad, x, *, alpha):
    return grad * (alpha * torch.cos(alpha * x) * x + torch.sin(alpha * x))


@oneop.op("gallery::cube", kernels=CPP)
def cube(x: Float[Tensor, "n m"], *, alpha: float = 1.0) -> Float[Tensor, "n m"]:
    return x**3 + alpha


@oneop.op("gallery::linear", kernels=CPP)
def linear(
    x: Float[Tensor, "n k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, "n m"]:
    y = alpha * (x @ weight.T)
    return y if bias is None else y + beta * bias


@linear.gradient(kernels=CPP)
def linear_grad(grad, x, weight, bias, *, alpha, beta):
    return alpha * grad @ weight, alpha * grad.T @ x, None if bias is None else beta * grad.sum(0)


@oneop.op("gallery::blend", kernels=C)
def blend(
    a: Float[Tensor, "n"], b: Float[Tensor, "n"], c: Float[Tensor, "n"], mask: Bool[Tensor, "n"], *, power: int = 2
) -> Float[Tensor, "n"]:
    return torch.where(mask, a * b**power, c * b)


blend.example(power="power >= 1")  # b ** (power - 1) is not what it seems at b = 0


@blend.gradient(kernels=C)
def blend_grad(grad, a, b, c, mask, *, power):
    zero = torch.zeros_like(grad)
    return (
        torch.where(mask, grad * b**power, zero),
        torch.where(mask, grad * a * power * b ** (power - 1), grad * c),
        torch.where(mask, zero, grad * b),
        None,
    )


@oneop.op("gallery::total", kernels=CPP)
def total(scale: Float[Tensor, ""], xs: list[Float[Tensor, "*batch n"]]) -> Float[Tensor, "*batch n"]:
    return scale * sum(x * x for x in xs)


@total.gradient
def total_grad(grad, scale, xs):
    return (grad * sum(x * x for x in xs)).sum(), [2 * scale * grad * x for x in xs]


@oneop.op("gallery::take", kernels=CPP)
def take(x: Float[Tensor, "n m"], index: Int[Tensor, "k"]) -> Float[Tensor, "k m"]:
    return x[index.long()]


take.example(index="0 <= index < n")


@take.gradient(kernels=CPP)
def take_grad(grad, x, index):
    return torch.zeros_like(x).index_add(0, index.long(), grad), None


@oneop.op("gallery::pick", kernels=CPP)
def pick(index: Int[Tensor, "k"], x: Float[Tensor, "n m"], scale: Float[Tensor, "m"]) -> Float[Tensor, "k m"]:
    return x[index.long()] * scale


pick.example(index="0 <= index < n")


@pick.gradient(kernels=CPP)
def pick_grad(grad, index, x, scale):
    return None, torch.zeros_like(x).index_add(0, index.long(), grad * scale), (grad * x[index.long()]).sum(0)


@oneop.op("gallery::choose", kernels=C)
def choose(
    mask: Bool[Tensor, "n"], a: Float[Tensor, "n"], times: Int64[Tensor, "n"], b: Float[Tensor, "n"]
) -> Float[Tensor, "n"]:
    return torch.where(mask, a * a * times, b * b)


@choose.gradient(kernels=C)
def choose_grad(grad, mask, a, times, b):
    zero = torch.zeros_like(grad)
    return None, torch.where(mask, 2 * grad * a * times, zero), None, torch.where(mask, zero, 2 * grad * b)


class Moments(NamedTuple):
    mean: Float[Tensor, "n"]
    largest: Int64[Tensor, "n"]
    spread: Float[Tensor, "n"]


@oneop.op("gallery::moments", kernels=CPP)
def moments(x: Float[Tensor, "n m"]) -> Moments:
    mean = x.mean(1)
    return Moments(mean, x.argmax(1), ((x - mean[:, None]) ** 2).mean(1))


moments.example(x="finite")  # torch's argmax takes NaN for the largest, the kernel does not


@moments.gradient(kernels=CPP)
def moments_grad(grad_mean, grad_spread, x, mean):
    """Uses the mean that forward gave, and not the spread's or the index's gradient where nobody has one."""
    return ((grad_mean[:, None] + 2 * grad_spread[:, None] * (x - mean[:, None])) / x.shape[1],)


@oneop.op("gallery::every_attribute", kernels=C)
def every_attribute(
    x: Float[Tensor, "n"],
    *,
    scale: float,
    times: int = 2,
    negate: bool = False,
    mode: Literal["sum", "product"] = "sum",
    word: str = "oneop",
    factors: list[float] = (1.0, 0.5),
    shifts: list[int] = (),
    names: list[str] = ("a", "bc"),
    extra: float | None = None,
) -> Float[Tensor, "n*times"]:
    letters = sum(len(text.encode()) for text in (word, *names))
    value = sum(factors) + sum(shifts) + letters + (0.0 if extra is None else extra)
    y = x * x * scale + value if mode == "sum" else x * x * scale * value
    return (-y if negate else y).repeat_interleave(times)


@oneop.op("gallery::soft", kernels=CPP)
def soft(x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    return torch.softmax(x, -1)


@soft.gradient(kernels=CPP)
def soft_grad(grad, x, out):
    """Saves what forward gave; second order goes through it."""
    return out * (grad - (grad * out).sum(-1, keepdim=True))


@oneop.op("gallery::positive", kernels=CPP)
def positive(x: Float[Tensor, "n"]) -> Float[Tensor, "?k"]:
    return x[x > 0] ** 2


@oneop.op("gallery::outer", kernels=CPP, layout="strided")
def outer(x: Float[Tensor, "n m"], y: Float[Tensor, "m k"]) -> Float[Tensor, "n k m"]:
    return x[:, None, :] * y.T[None]


@outer.gradient(kernels=CPP)
def outer_grad(grad, x, y):
    return (grad * y.T[None]).sum(1), (grad * x[:, None, :]).sum(0).T


@oneop.op("gallery::same")
def same(x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    return x


@oneop.op("gallery::windows", kernels=CPP)
def windows(
    x: Float[Tensor, "*batch n"], *, size: int = 2, stride: int = 1
) -> Float[Tensor, "*batch (n-size)//stride+1"]:
    return x.unfold(-1, size, stride).square().sum(-1)


windows.example(size="1 <= size <= n", stride="stride >= 1")


@oneop.op("gallery::gradient_counts", kernels=CPP, native_only=True)
def gradient_counts(x: Float[Tensor, ""]) -> Int64[Tensor, "3"]:
    """How often the gradient kernel of linear computed each of its three gradients."""


@dataclass(frozen=True)
class Example:
    """An operator of the gallery, how to call it, and what its row of the table says."""

    op: oneop.Operator
    shape: str
    gradient: str
    inputs: Callable[[], tuple[Any, ...]]
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.op.definition.base


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


EXAMPLES = [
    Example(plain, "one input", "derived (no kernel)", lambda: (randn(4),), {"alpha": 0.7}),
    Example(written, "one input", "written in Python (no kernel)", lambda: (randn(4),), {"alpha": 0.7}),
    Example(cube, "one input", "derived", lambda: (randn(2, 3),), {"alpha": 0.5}),
    Example(
        linear, "optional input", "in C++", lambda: (randn(3, 4), randn(2, 4), randn(2)), {"alpha": 2.0, "beta": 0.5}
    ),
    Example(linear, "optional input, absent", "in C++", lambda: (randn(3, 4), randn(2, 4), None), {"alpha": 2.0}),
    Example(
        blend,
        "many inputs, one of booleans",
        "in C",
        lambda: (randn(4), randn(4, seed=1), randn(4, seed=2), torch.tensor([True, False, True, False])),
        {"power": 3},
    ),
    Example(total, "variadic", "written in Python", lambda: (randn(), [randn(2, 3), randn(2, 3, seed=1)])),
    Example(take, "integer input", "in C++", lambda: (randn(4, 2), torch.tensor([3, 0, 3]))),
    Example(moments, "several outputs, one of integers", "in C++, uses an output", lambda: (randn(3, 5),)),
    Example(
        every_attribute,
        "attributes of every kind",
        "derived",
        lambda: (randn(3),),
        {"scale": 1.5, "negate": True, "mode": "product", "shifts": [1, -2], "extra": 0.25},
    ),
    Example(soft, "`*batch`", "in C++, uses its output", lambda: (randn(2, 2, 3),)),
    Example(positive, "data-dependent size", "derived", lambda: (randn(6),)),
    Example(outer, "strided layout", "in C++", lambda: (randn(3, 2).T, randn(4, 3).T)),
    Example(same, "output that would alias its input", "derived (no kernel)", lambda: (randn(2, 3),)),
    Example(windows, "`*batch`, expression of attributes", "derived", lambda: (randn(2, 5),), {"size": 3, "stride": 2}),
    Example(pick, "integer input first", "in C++", lambda: (torch.tensor([3, 0, 3]), randn(4, 2), randn(2)), {}),
    Example(
        choose,
        "integer and boolean inputs before floating ones",
        "in C",
        lambda: (torch.tensor([True, False, True]), randn(3), torch.tensor([1, 2, 3]), randn(3, seed=1)),
    ),
]
