"""The ScaledLinears: the same layer in Python, with kernels in C++, in C, and in CUDA, which the CPU has none of."""

from types import ModuleType

import pytest
import torch
from scaled_linear_c import scaled_linear as in_c
from scaled_linear_cpp import scaled_linear as in_cpp
from scaled_linear_cuda import scaled_linear as in_cuda
from scaled_linear_python import scaled_linear as in_python
from torch import nn

WAYS = [
    pytest.param(in_python, id="python"),
    pytest.param(in_cpp, id="c++"),
    pytest.param(in_c, id="c"),
    pytest.param(in_cuda, id="cuda"),
]
SHAPES = [(3, 5, 4), (1, 1, 1), (17, 33, 9), (0, 5, 4), (3, 0, 4), (3, 5, 0), (64, 100, 70)]


def expected(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, alpha: float, beta: float
) -> torch.Tensor:
    """The layer in float64, from its formula."""
    y = alpha * (x.double() @ weight.double().T)
    return y if bias is None else y + beta * bias.double()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_result_is_that_of_the_formula(
    way: ModuleType, dtype: torch.dtype, shape: tuple[int, int, int], with_bias: bool
) -> None:
    n, k, m = shape
    x, weight = torch.randn(n, k, dtype=dtype), torch.randn(m, k, dtype=dtype)
    bias = torch.randn(m, dtype=dtype) if with_bias else None
    y = way.scaled_linear(x, weight, bias, alpha=2.0, beta=-0.5)
    assert y.dtype == dtype
    # k + 2 roundings, each at most half an epsilon of the sum of the terms' sizes.
    sizes = expected(x.abs(), weight.abs(), None if bias is None else bias.abs(), 2.0, 0.5)
    assert ((y.double() - expected(x, weight, bias, 2.0, -0.5)).abs() <= (k + 2) * torch.finfo(dtype).eps * sizes).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("with_bias", [True, False])
def test_gradients(way: ModuleType, with_bias: bool) -> None:
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(7, dtype=torch.float64, requires_grad=True) if with_bias else None

    def function(*tensors: torch.Tensor) -> torch.Tensor:
        return way.scaled_linear(*tensors, alpha=2.0, beta=-0.5)

    inputs = (x, weight) if bias is None else (x, weight, bias)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("way", WAYS)
def test_only_the_gradient_that_is_asked_for(way: ModuleType) -> None:
    x, weight, bias = torch.randn(6, 5), torch.randn(7, 5), torch.randn(7)
    full = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    way.scaled_linear(*full, alpha=2.0, beta=-0.5).sum().backward()
    for wanted in range(3):
        some = [tensor.clone().requires_grad_(i == wanted) for i, tensor in enumerate((x, weight, bias))]
        way.scaled_linear(*some, alpha=2.0, beta=-0.5).sum().backward()
        torch.testing.assert_close(some[wanted].grad, full[wanted].grad)
        assert [tensor.grad is None for tensor in some] == [i != wanted for i in range(3)]


@pytest.mark.parametrize("way", WAYS)
class TestTheModule:
    def test_parameters_are_drawn_from_a_small_interval(self, way: ModuleType) -> None:
        layer = way.ScaledLinear(200, 300)
        assert layer.weight.shape == (300, 200)
        assert layer.bias.shape == (300,)
        for parameter in layer.parameters():
            assert isinstance(parameter, nn.Parameter)
            assert -0.1 <= parameter.min() < -0.09
            assert 0.09 < parameter.max() <= 0.1

    def test_without_bias(self, way: ModuleType) -> None:
        layer = way.ScaledLinear(3, 2, bias=False)
        assert layer.bias is None
        assert list(layer.state_dict()) == ["weight"]
        assert "bias" in layer._parameters
        x = torch.randn(4, 3)
        torch.testing.assert_close(layer(x), x @ layer.weight.T)

    def test_alpha_and_beta(self, way: ModuleType) -> None:
        layer = way.ScaledLinear(3, 2, alpha=3.0, beta=0.25)
        x = torch.randn(4, 3)
        torch.testing.assert_close(layer(x), 3.0 * x @ layer.weight.T + 0.25 * layer.bias)

    def test_how_it_prints(self, way: ModuleType) -> None:
        assert repr(way.ScaledLinear(3, 2, bias=False, alpha=2.0)) == (
            "ScaledLinear(in_features=3, out_features=2, bias=False, alpha=2.0, beta=1.0)"
        )

    def test_it_trains(self, way: ModuleType) -> None:
        torch.manual_seed(0)
        layer = way.ScaledLinear(3, 2, alpha=2.0, beta=0.5)
        x = torch.randn(64, 3)
        target = x @ torch.randn(3, 2) + 1.0
        optimizer = torch.optim.Adam(layer.parameters(), 0.1)
        for _ in range(200):
            loss = nn.functional.mse_loss(layer(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert loss.item() < 1e-3

    def test_it_compiles_whole(self, way: ModuleType) -> None:
        layer = way.ScaledLinear(3, 2, alpha=2.0)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        x = torch.randn(4, 3)
        torch.testing.assert_close(compiled(x), layer(x))


def test_they_agree() -> None:
    layers = [way.ScaledLinear(20, 30, alpha=1.5, beta=-2.0) for way in (in_python, in_cpp, in_c, in_cuda)]
    for layer in layers[1:]:
        layer.load_state_dict(layers[0].state_dict())
    x = torch.randn(8, 20)
    results = [layer(x) for layer in layers]
    gradients = [
        torch.autograd.grad(y.square().sum(), layer.weight)[0] for y, layer in zip(results, layers, strict=True)
    ]
    for y, gradient in zip(results[1:], gradients[1:], strict=True):
        torch.testing.assert_close(y, results[0])
        torch.testing.assert_close(gradient, gradients[0])
