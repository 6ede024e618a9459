"""What torch does with operators on the GPU: gradients of every order, vmap, forward mode, compile, graphs."""

import cuda_operators
import pytest
import torch
from examples_of_cuda import scaled_linear
from torch import Tensor


def on_gpu(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to("cuda").requires_grad_()


def test_a_written_gradient_runs_its_kernel() -> None:
    x = on_gpu(4, 30)
    weights = torch.randn(4, dtype=torch.float64).to("cuda")
    cuda_operators.spread(x).backward(weights)
    expected = cuda_operators.spread_grad.reference(weights.cpu(), x.detach().cpu())
    assert x.grad is not None
    assert x.grad.device.type == "cuda"
    torch.testing.assert_close(x.grad.cpu(), expected)


def test_a_gradient_that_arrives_with_stride_0() -> None:
    x = on_gpu(4, 30)
    cuda_operators.spread(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), cuda_operators.spread_grad.reference(torch.ones(4), x.detach().cpu()))


def test_a_derived_gradient() -> None:
    x, y = on_gpu(3, 5), on_gpu(3, 5)
    cuda_operators.axpby(x, y, alpha=2.0, beta=-3.0).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.cpu().eq(2).all()
    assert y.grad.cpu().eq(-3).all()


def test_gradients_where_there_is_no_kernel() -> None:
    """Of a dtype without one on the GPU, and on the CPU, where there is none at all."""
    for x in (torch.randn(3, 8).half().to("cuda").requires_grad_(), torch.randn(3, 8).requires_grad_()):
        cuda_operators.spread(x).sum().backward()
        assert x.grad is not None
        expected = cuda_operators.spread_grad.reference(torch.ones(3), x.detach().cpu().float())
        torch.testing.assert_close(x.grad.cpu().float(), expected, rtol=1e-2, atol=1e-2)
    y = torch.randn(5, requires_grad=True)
    cuda_operators.polynomial(y, coefficients=[0.0, 1.0, 3.0]).sum().backward()
    assert y.grad is not None
    torch.testing.assert_close(y.grad, 1 + 6 * y.detach())


def test_first_and_second_derivatives_against_finite_differences() -> None:
    x, weight, bias = on_gpu(3, 4), on_gpu(2, 4), on_gpu(2)

    def call(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return scaled_linear(x, weight, bias, alpha=1.5, beta=-0.5)

    assert torch.autograd.gradcheck(call, (x, weight, bias))
    assert torch.autograd.gradgradcheck(call, (x, weight, bias))
    assert torch.autograd.gradgradcheck(cuda_operators.spread, (on_gpu(2, 3),))


def test_gradients_on_another_stream(on_new_stream) -> None:  # type: ignore[no-untyped-def]
    x = on_gpu(4, 30)
    with on_new_stream():
        cuda_operators.spread(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), cuda_operators.spread_grad.reference(torch.ones(4), x.detach().cpu()))


def test_forward_mode() -> None:
    x, tangent = on_gpu(3, 4).detach(), on_gpu(3, 4).detach()
    _, found = torch.func.jvp(cuda_operators.spread, (x,), (tangent,))
    _, expected = torch.func.jvp(cuda_operators.spread.reference, (x.cpu(),), (tangent.cpu(),))
    torch.testing.assert_close(found.cpu(), expected)


def test_vmap() -> None:
    x, y = on_gpu(5, 3, 4).detach(), on_gpu(5, 3, 4).detach()
    found = torch.func.vmap(lambda a, b: cuda_operators.axpby(a, b, alpha=2.0))(x, y)
    torch.testing.assert_close(found, 2 * x + y)
    found = torch.func.vmap(cuda_operators.spread)(x)
    torch.testing.assert_close(found.cpu(), x.cpu().var(-1, unbiased=False))


def test_hessian() -> None:
    x = on_gpu(1, 4).detach()
    found = torch.func.hessian(lambda value: cuda_operators.spread(value).sum())(x)
    expected = torch.func.hessian(lambda value: cuda_operators.spread.reference(value).sum())(x.cpu())
    torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(backend: str, request: pytest.FixtureRequest) -> None:
    if backend == "inductor":
        request.getfixturevalue("real_gpu")

    def model(x: Tensor, weight: Tensor) -> Tensor:
        return scaled_linear(x.sin(), weight, alpha=2.0).relu()

    x, weight = on_gpu(3, 4), on_gpu(2, 4)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    found = compiled(x, weight)
    torch.testing.assert_close(found, model(x, weight))
    found.sum().backward()
    gradient = x.grad
    x.grad = None
    model(x, weight).sum().backward()
    torch.testing.assert_close(gradient, x.grad)


def test_opcheck() -> None:
    torch.library.opcheck(cuda_operators.axpby.torch_op, (on_gpu(3, 4), on_gpu(3, 4)), {"alpha": 2.0, "beta": 1.0})
    torch.library.opcheck(cuda_operators.spread.torch_op, (on_gpu(3, 4),), {})


def test_autocast_on_the_gpu() -> None:
    x, y = torch.ones(3, dtype=torch.float16, device="cuda"), torch.ones(3, device="cuda")
    with torch.autocast("cuda"):
        found = cuda_operators.axpby(x, y)
    assert found.dtype == torch.float32
    assert found.tolist() == [2, 2, 2]


def test_a_cuda_graph_replays_the_kernel(real_gpu: None) -> None:
    x, y = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    rows = torch.randn(20, 300, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # a first time, which builds and allocates
        cuda_operators.axpby(x, y, alpha=2.0)
        cuda_operators.spread(rows)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = cuda_operators.axpby(x, y, alpha=2.0)
        spread = cuda_operators.spread(rows)
    for _ in range(3):
        x.copy_(torch.randn(1000))
        rows.copy_(torch.randn(20, 300))
        graph.replay()
        torch.testing.assert_close(found, 2 * x + y)
        torch.testing.assert_close(spread, cuda_operators.spread.reference(rows))


def test_a_size_that_the_kernel_finds_out_cannot_be_captured(real_gpu: None) -> None:
    x = torch.randn(10, device="cuda")
    cuda_operators.positive(x)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError), torch.cuda.graph(graph):
        cuda_operators.positive(x)
