"""ScaledLinear as an operator with CUDA kernels, for result and gradients. On the CPU its reference runs."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

import oneop


@oneop.op("demo_cuda::scaled_linear", kernels=["scaled_linear.cu"])
def scaled_linear(
    x: Float[Tensor, "n k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, "n m"]:
    """alpha * x @ weight.T + beta * bias"""
    y = alpha * (x @ weight.T)
    return y if bias is None else y + beta * bias


@scaled_linear.gradient(kernels=["scaled_linear.cu"])
def scaled_linear_grad(grad, x, weight, bias, *, alpha, beta):
    return alpha * grad @ weight, alpha * grad.T @ x, None if bias is None else beta * grad.sum(0)


class ScaledLinear(nn.Module):
    """alpha * x @ weight.T + beta * bias, for x of shape (n, in_features); the result is (n, out_features)."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, alpha: float = 1.0, beta: float = 1.0
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.alpha, self.beta = alpha, beta
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_features)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return scaled_linear(x, self.weight, self.bias, alpha=self.alpha, beta=self.beta)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"alpha={self.alpha}, beta={self.beta}"
        )
