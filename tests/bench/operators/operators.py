"""Operators that the benchmark's tests measure: right ones, wrong ones, and some that cannot be measured."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import oneop

KERNELS = ["operators.c"]


@oneop.op("bench::scaled_add", kernels=KERNELS, dtypes=["float32", "float64"])
def scaled_add(x: Float[Tensor, "n"], y: Float[Tensor, "n"] | None = None, *, alpha: float = 1.5) -> Float[Tensor, "n"]:
    return alpha * x if y is None else alpha * x + y


@oneop.op("bench::forgetful", kernels=KERNELS, dtypes=["float32"])
def forgetful(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
    """Its kernel does not know of alpha."""
    return alpha * x


@oneop.op("bench::lost_beta", kernels=KERNELS, dtypes=["float32"])
def lost_beta(x: Float[Tensor, "n"], *, alpha: float = 2.0, beta: float = 0.25) -> Float[Tensor, "n"]:
    """Its kernel knows of alpha alone."""
    return alpha * x + beta


@oneop.op("bench::wrong_integers", kernels=KERNELS)
def wrong_integers(x: Int64[Tensor, "n"]) -> Int64[Tensor, "n"]:
    """Its kernel is off by one, in one place."""
    return 3 * x + 2**53


@oneop.op("bench::half_gradient", kernels=KERNELS, dtypes=["float32"])
def half_gradient(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Its gradient's kernel lacks the factor; the gradient's reference is right."""
    return x * x


@half_gradient.gradient(kernels=KERNELS, dtypes=["float32"])
def half_gradient_grad(grad, x):
    return 2 * grad * x


@oneop.op("bench::too_short")
def too_short(x: Float[Tensor, "n"]) -> Float[Tensor, "n+1"]:
    """Its reference gives n."""
    return x.clone()


@oneop.op("bench::narrow")
def narrow(x: Float[Tensor, "n"]) -> Int64[Tensor, "n"]:
    """Its reference gives int32."""
    return x.sign().int()


@oneop.op("bench::wrong_gradient")
def wrong_gradient(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x * x


@wrong_gradient.gradient
def wrong_gradient_grad(grad, x):
    return grad * x


@oneop.op("bench::failing", kernels=KERNELS, dtypes=["float32"])
def failing(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x + 1


@oneop.op("bench::bare", kernels=KERNELS, dtypes=["float32"], native_only=True)
def bare(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]: ...


@oneop.op("bench::plain")
def plain(x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    return torch.tanh(x)


@oneop.op("bench::pick")
def pick(x: Float[Tensor, "n m"], index: Int64[Tensor, "k"]) -> Float[Tensor, "k m"]:
    if int(index.min()) < 2:
        raise ValueError("the first two rows are reserved")
    return x[index]


@pick.example(index="2 <= index < n")
def the_third_row():
    return torch.randn(4, 2), torch.tensor([2])


@oneop.op("bench::reserved")
def reserved(x: Float[Tensor, "n m"], index: Int64[Tensor, "k"]) -> Float[Tensor, "k m"]:
    """The same without a word of it."""
    return pick.reference(x, index)


@oneop.op("bench::windows")
def windows(x: Float[Tensor, "n"], *, size: int, scale: float) -> Float[Tensor, "n-size+1"]:
    return scale * x.unfold(0, size, 1).sum(-1)


@windows.example
def pairs():
    return torch.randn(8), {"size": 2, "scale": 0.1}


@oneop.op("bench::stateless")
def stateless(x: Float[Tensor, "n"], *, scale: float, flags: list[int] = ()) -> Float[Tensor, "n"]:
    return x * scale + sum(flags)


@oneop.op("bench::broken_example")
def broken_example(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x + 1


@broken_example.example
def of_a_file():
    raise FileNotFoundError("photo.png")
