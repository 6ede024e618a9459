"""Operators with one fault each in their kernels or gradients, and one without: what the check has to tell apart."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import oneop

CPP = ["faulty.cpp"]


@oneop.op("faulty::right", kernels=CPP)
def right(
    x: Float[Tensor, "n m"], bias: Float[Tensor, "m"] | None = None, *, alpha: float = 1.0, beta: float = 1.0
) -> Float[Tensor, "n m"]:
    y = alpha * x * x
    return y if bias is None else y + beta * bias


@right.gradient(kernels=CPP)
def right_grad(grad, x, bias, *, alpha, beta):
    return 2 * alpha * grad * x, None if bias is None else beta * grad.sum(0)


@oneop.op("faulty::dropped", kernels=CPP)
def dropped(x: Float[Tensor, "n m"], *, alpha: float = 1.0, beta: float = 0.5) -> Float[Tensor, "n m"]:
    return alpha * x + beta


@oneop.op("faulty::nearly", kernels=CPP)
def nearly(x: Float[Tensor, "n"], *, beta: float = 1.0) -> Float[Tensor, "n"]:
    return x + beta


@oneop.op("faulty::exchanged", kernels=CPP)
def exchanged(x: Float[Tensor, "n k"], weight: Float[Tensor, "k k"]) -> Float[Tensor, "n k"]:
    return x @ weight.T


@oneop.op("faulty::unstrided", kernels=CPP, layout="strided")
def unstrided(x: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    return 2 * x


@oneop.op("faulty::short_of_one", kernels=CPP)
def short_of_one(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x + 1


@oneop.op("faulty::lost_nan", kernels=CPP)
def lost_nan(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return torch.relu(x)


@oneop.op("faulty::racing", kernels=CPP)
def racing(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return 3 * x


@oneop.op("faulty::keeping", kernels=CPP)
def keeping(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x.clone()


@oneop.op("faulty::crashing", kernels=CPP)
def crashing(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return -x


@oneop.op("faulty::summed", kernels=CPP, layout="strided")
def summed(x: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    return x * x


@summed.gradient(kernels=CPP)
def summed_grad(grad, x):
    return 2 * x * grad


@oneop.op("faulty::both_wrong")
def both_wrong(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return torch.sin(x)


@both_wrong.gradient
def both_wrong_grad(grad, x):
    """Off by a thousandth: a formula that the kernel would share."""
    return grad * torch.cos(x) * 1.001


@oneop.op("faulty::first_order_only")
def first_order_only(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x**3


@first_order_only.gradient
def first_order_only_grad(grad, x):
    """Right, and its own derivative is not: one x of the two is detached."""
    return 3 * grad * x * x.detach()


@oneop.op("faulty::never_taken")
def never_taken(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    raise ValueError("this reference takes nothing")


@oneop.op("faulty::counted")
def counted(index: Int64[Tensor, "k"], x: Float[Tensor, "n"]) -> Int64[Tensor, "n"]:
    """An operator of integers, with an output of integers."""
    return torch.bincount(index, minlength=x.shape[0])


counted.example(index="0 <= index < n", n="n >= 1")


@oneop.op("faulty::far", kernels=CPP)
def far(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x - 1


@oneop.op("faulty::in_pieces", kernels=CPP)
def in_pieces(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x + 2


@oneop.op("faulty::half_forward")
def half_forward(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Its tangent lacks a term, and the reference's lacks it too."""
    return x * torch.sin(x.detach())


@oneop.op("faulty::branching", kernels=CPP)
def branching(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """No fault; but there is no ONNX function for all sizes."""
    return x + (1 if x.shape[0] > 20 else 2)
