"""Operators that say how they may be split, and some that say it wrongly or not at all."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

import oneop

EXAMPLE = "../../examples/scaled_linear_cpp"


@oneop.op(
    "distributed::scaled_linear",
    kernels=[f"{EXAMPLE}/scaled_linear.cpp"],
    independent=("n", "m"),
    summed={"k": "bias"},
)
def scaled_linear(
    x: Float[Tensor, "n k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, "n m"]:
    """alpha * x @ weight.T + beta * bias, with a gradient in C++."""
    y = alpha * (x @ weight.T)
    return y if bias is None else y + beta * bias


@scaled_linear.gradient(kernels=[f"{EXAMPLE}/scaled_linear_grad.cpp"])
def scaled_linear_grad(grad, x, weight, bias, *, alpha, beta):
    return alpha * grad @ weight, alpha * grad.T @ x, None if bias is None else beta * grad.sum(0)


@oneop.op("distributed::gate", kernels=["gate.cpp"])
def gate(x: Float[Tensor, "*batch n"], *, slope: float = 1.0) -> Float[Tensor, "*batch n"]:
    """x * sigmoid(slope * x) with a derived gradient; ``*batch`` says that rows do not depend on each other."""
    return x * torch.sigmoid(slope * x)


@oneop.op("distributed::softmax", independent=("n",))
def softmax(x: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    return x.softmax(1)


@softmax.gradient
def softmax_grad(grad, x, out):
    return (out * (grad - (grad * out).sum(1, keepdim=True)),)


@oneop.op("distributed::weighted", independent=("n",), summed=("k",))
def weighted(x: Float[Tensor, "n k"], scale: Float[Tensor, ""]) -> Float[Tensor, "n"]:
    """A sum along ``k``, times a factor that each share needs whole."""
    return scale * x.sum(1)


@weighted.gradient
def weighted_grad(grad, x, scale):
    return (scale * grad)[:, None].expand_as(x), (grad * x.sum(1)).sum()


@oneop.op("distributed::factored", summed=("k",))
def factored(x: Float[Tensor, "n k"], scale: Float[Tensor, ""]) -> Float[Tensor, "n"]:
    """The same; its gradient uses the output, of which a share has a summand only."""
    return scale * x.sum(1)


@factored.gradient
def factored_grad(grad, x, scale, out):
    return (scale * grad)[:, None].expand_as(x), (grad * out / scale).sum()


@oneop.op("distributed::positions")
def positions(x: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """The reference makes a tensor of its own, so that DTensor cannot differentiate it."""
    return x.sin() * torch.arange(x.shape[1])


class Parts(NamedTuple):
    total: Float[Tensor, "n"]
    kept: Float[Tensor, "n k"]


@oneop.op("distributed::parts", independent=("n",))
def parts(x: Float[Tensor, "n k"], index: Int64[Tensor, "n"], w: Float[Tensor, "k"] | None = None) -> Parts:
    """Two outputs, an index, an optional input; the gradient names an output."""
    kept = x if w is None else x * w
    return Parts(kept.gather(1, index[:, None])[:, 0], kept * kept)


@parts.gradient
def parts_grad(grad_total, grad_kept, x, index, w, kept):
    inner = 2 * grad_kept * (x if w is None else x * w)
    inner = inner.scatter_add(1, index[:, None], grad_total[:, None])
    return inner if w is None else inner * w, None, None if w is None else (inner * x).sum(0)


@oneop.op("distributed::switched", independent=("n",))
def switched(x: Float[Tensor, "n"], *, mode: Literal["each", "all"] = "each") -> Float[Tensor, "n"]:
    """What it says of ``n`` holds in one mode only."""
    return x.sigmoid() if mode == "each" else x.softmax(0)


@oneop.op("distributed::mixed", independent=("k",))
def mixed(x: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """A wrong word: a softmax mixes ``k``."""
    return x.softmax(1)


@oneop.op("distributed::rectified", summed=("k",))
def rectified(x: Float[Tensor, "n k"]) -> Float[Tensor, "n"]:
    """A wrong word: the sum stands inside relu."""
    return x.sum(1).relu()


@oneop.op("distributed::biased", summed=("k",))
def biased(x: Float[Tensor, "n k"], bias: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """A wrong word: ``bias`` would be added once a share."""
    return x.sum(1) + bias


@oneop.op("distributed::lying", independent=("n",))
def lying(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x * x


@lying.gradient
def lying_grad(grad, x):
    """A gradient that no slice of it gives."""
    return (2 * grad * x + grad.sum(),)


@oneop.op("distributed::group_mixed")
def group_mixed(x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """Elements of its leading group depend on each other, which they should not."""
    return x - x.mean()


@oneop.op("distributed::positive", independent=("n",))
def positive(x: Float[Tensor, "n k k"]) -> Float[Tensor, "n k k"]:
    """Random numbers are no input for it."""
    return torch.linalg.cholesky(x)


@oneop.op("distributed::at_least_nine", independent=("n",))
def at_least_nine(x: Float[Tensor, "n k"]) -> Float[Tensor, "n"]:
    """Fails for a small ``k``."""
    return x.topk(9, dim=1).values.sum(1)


@oneop.op("distributed::silent")
def silent(x: Float[Tensor, "n k"], w: Float[Tensor, "k"]) -> Float[Tensor, "n k"]:
    """Says nothing."""
    return x * w


@silent.gradient
def silent_grad(grad, x, w):
    return grad * w, (grad * x).sum(0)


@oneop.op("distributed::total")
def total(xs: list[Float[Tensor, "*batch n"]], *, scale: float = 1.0) -> Float[Tensor, "*batch n"]:
    return scale * torch.stack(xs).sum(0)


@total.gradient
def total_grad(grad, xs, *, scale):
    return ([scale * grad for _ in xs],)


@oneop.op("distributed::derived_total")
def derived_total(xs: list[Float[Tensor, "*batch n"]]) -> Float[Tensor, "*batch n"]:
    return sum(xs[1:], xs[0])


@oneop.op("distributed::positives")
def positives(x: Float[Tensor, "n"]) -> Float[Tensor, "?k"]:
    return x[x > 0]


@oneop.op("distributed::written_positives")
def written_positives(x: Float[Tensor, "n"], w: Float[Tensor, "n"] | None = None) -> Float[Tensor, "?k"]:
    y = x if w is None else x * w
    return y[x > 0]


@written_positives.gradient
def written_positives_grad(grad, x, w):
    full = torch.zeros_like(x).masked_scatter(x > 0, grad)
    return full if w is None else full * w, None if w is None else full * x


class Layer(nn.Module):
    """A layer that holds the operator that it calls."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.operator = scaled_linear
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.operator(x, self.weight, self.bias, alpha=0.5, beta=2.0)


class Gate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return gate(x, slope=1.5)


def network() -> nn.Module:
    """Kernels with a written gradient and with a derived one, in float64."""
    torch.manual_seed(0)
    return nn.Sequential(Layer(6, 8), Gate(), Layer(8, 8), Gate(), Layer(8, 2)).double()
