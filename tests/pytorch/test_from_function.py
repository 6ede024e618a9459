"""Existing ``torch.autograd.Function`` classes taken over as operators, in both styles."""

from typing import NamedTuple

import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor

import oneop
from oneop.errors import CallError, DefinitionError
from oneop.targets.pytorch.from_function import from_function


class LinearFunction(torch.autograd.Function):
    """The tutorial's linear layer, with attributes in the middle of its arguments."""

    @staticmethod
    def forward(ctx, x, weight, alpha, bias=None, beta=1.0):
        ctx.save_for_backward(x, weight, bias)
        ctx.alpha = alpha
        ctx.beta = beta
        y = alpha * x.mm(weight.t())
        return y if bias is None else y + beta * bias

    @staticmethod
    def backward(ctx, grad):
        x, weight, bias = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = ctx.alpha * grad.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = ctx.alpha * grad.t().mm(x)
        if bias is not None and ctx.needs_input_grad[3]:
            grad_bias = ctx.beta * grad.sum(0)
        return grad_x, grad_weight, None, grad_bias, None


class ExpFunction(torch.autograd.Function):
    """The new style; saves its output."""

    @staticmethod
    def forward(x, scale):
        return torch.exp(scale * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.scale = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return ctx.scale * grad * y, None


class RoundFunction(torch.autograd.Function):
    """A straight-through estimator: its gradient is no derivative of its forward."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad

    @staticmethod
    def symbolic(g, x):
        return g.op("taken::RoundThrough", x)


class SplitFunction(torch.autograd.Function):
    """Several outputs, one of them of integers."""

    @staticmethod
    def forward(ctx, x):
        values, indices = x.sort(1)
        ctx.mark_non_differentiable(indices)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(indices)
        return values, indices

    @staticmethod
    def backward(ctx, grad, _):
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter(1, indices, grad)


def linear_signature(
    x: Float[Tensor, "n k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float,
    beta: float = 1.0,
) -> Float[Tensor, "n m"]:
    """A linear layer."""


def exp_signature(x: Float[Tensor, "*batch n"], *, scale: float = 1.0) -> Float[Tensor, "*batch n"]: ...


def round_signature(x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]: ...


class Sorted(NamedTuple):
    values: Float[Tensor, "n m"]
    indices: Int64[Tensor, "n m"]


def sort_signature(x: Float[Tensor, "n m"]) -> Sorted: ...


linear = from_function(LinearFunction, "taken::linear", linear_signature)
exponential = from_function(ExpFunction, "taken::exponential", exp_signature)
rounded = from_function(RoundFunction, "taken::rounded", round_signature)
sort = from_function(SplitFunction, "taken::sort", sort_signature)


def randn(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def test_values_and_gradients_are_those_of_the_function():
    x, w, b = randn(3, 4), randn(5, 4), randn(5)
    mine, theirs = linear(x, w, b, alpha=2.0, beta=0.5), LinearFunction.apply(x, w, 2.0, b, 0.5)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    seed = torch.randn_like(mine)
    torch.testing.assert_close(
        torch.autograd.grad(mine, (x, w, b), seed), torch.autograd.grad(theirs, (x, w, b), seed), rtol=0, atol=0
    )
    assert torch.autograd.gradcheck(lambda *a: linear(*a, alpha=2.0, beta=0.5), (x, w, b))
    assert torch.autograd.gradgradcheck(lambda *a: linear(*a, alpha=2.0, beta=0.5), (x, w, b))
    assert torch.autograd.gradcheck(lambda *a: linear(*a, alpha=2.0), (x, w))


def test_a_saved_output_stays_connected_in_double_backward():
    x = randn(2, 3)
    assert torch.autograd.gradcheck(lambda x: exponential(x, scale=0.5), (x,))
    assert torch.autograd.gradgradcheck(lambda x: exponential(x, scale=0.5), (x,))
    hessian = torch.func.hessian(lambda x: exponential(x, scale=0.5).sum())(x.detach())
    torch.testing.assert_close(hessian, torch.func.hessian(lambda x: torch.exp(0.5 * x).sum())(x.detach()))


def test_the_written_gradient_is_taken_where_it_is_no_derivative():
    x = randn(4)
    (3 * rounded(x)).sum().backward()
    assert x.grad.tolist() == [3, 3, 3, 3]
    assert rounded.definition.onnx_name == "RoundThrough"


def test_several_outputs():
    x = randn(2, 3)
    values, indices = sort(x)
    assert not indices.requires_grad
    values[:, 0].sum().backward()
    assert x.grad.sum() == 2
    torch.testing.assert_close(x.gather(1, indices), values)


def test_it_is_a_full_operator():
    x, w = randn(3, 4), randn(5, 4)
    torch.library.opcheck(linear.torch_op, (x, w), {"alpha": 2.0})
    torch.library.opcheck(exponential.torch_op, (x,), {"scale": 2.0})
    step = torch.compile(lambda x, w: linear(x, w, alpha=2.0).square().sum(), fullgraph=True, backend="aot_eager")
    eager = torch.autograd.grad(linear(x, w, alpha=2.0).square().sum(), (x, w))
    torch.testing.assert_close(torch.autograd.grad(step(x, w), (x, w)), eager)
    assert linear.__doc__ == "A linear layer."
    assert linear.defined_in == __file__
    assert linear.gradient_operator.defined_in == __file__
    assert oneop.registry.operators()["taken::linear_grad"] is linear.gradient_operator


def refuse(function, signature=round_signature, name="taken::refused"):
    with pytest.raises(DefinitionError) as caught:
        from_function(function, name, signature)
    assert name not in oneop.registry.operators()
    return str(caught.value)


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, grad):
        return grad


calls = 0


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        global calls
        calls += 1
        return x + 1

    @staticmethod
    def backward(ctx, grad):
        return grad


class Standard(RoundFunction):
    @staticmethod
    def symbolic(g, x):
        return g.op("Round", x)


class OtherDomain(RoundFunction):
    @staticmethod
    def symbolic(g, x):
        return g.op("mine::Round", x, mode_s="even")


class Broken(RoundFunction):
    @staticmethod
    def symbolic(g, x):
        raise ValueError("no")


def test_what_an_operator_cannot_do_is_refused():
    assert (
        refuse(InPlace)
        == "taken::refused: InPlace changes an input in place (mark_dirty), which an operator cannot. Return a new"
        " tensor."
    )
    assert (
        refuse(Counting) == "taken::refused: Counting.forward keeps state outside ctx: it assigns `calls`. "
        "Keep what backward needs on ctx, and make the rest an input or an output."
    )
    assert (
        refuse(LinearFunction)
        == "taken::refused: LinearFunction.forward takes (x, weight, alpha, bias, beta), and the signature (x). "
        "Give them the same names."
    )
    assert refuse(torch.nn.Linear).endswith("is not a subclass of torch.autograd.Function. Pass the class.")


def test_symbolics_that_cannot_be_honoured():
    assert "Standard.symbolic writes standard ONNX operators. Remove it" in refuse(Standard)
    assert refuse(OtherDomain).endswith(
        "OtherDomain.symbolic writes `mine::Round`. An operator's namespace is its ONNX domain: name it "
        '"mine::refused", or remove `symbolic`.'
    )
    assert "Broken.symbolic cannot be read: ValueError: no." in refuse(Broken)


class Miscounting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        return alpha * x

    @staticmethod
    def backward(ctx, grad):
        return grad, None, grad


def test_a_backward_of_the_wrong_count_says_so():
    def signature(x: Float[Tensor, "n"], *, alpha: float) -> Float[Tensor, "n"]: ...

    operator = from_function(Miscounting, "taken::miscounting", signature)
    with pytest.raises(CallError) as caught:
        operator(randn(2), alpha=2.0).sum().backward()
    assert (
        str(caught.value)
        == "taken::miscounting_grad: Miscounting.backward returned 3 values; forward takes 2 (x, alpha). "
        "Return one for each, None where there is no gradient."
    )


def test_it_is_exported_with_its_attributes(tmp_path):
    import onnx

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(5, 4))

        def forward(self, x):
            return rounded(linear(x, self.weight, alpha=2.0))

    path = tmp_path / "model.onnx"
    oneop.export(Model().eval(), (torch.randn(3, 4),), path, verbose=False)
    nodes = [node for node in onnx.load(path).graph.node if node.domain == "taken"]
    assert [(node.op_type, {item.name: item.f for item in node.attribute}) for node in nodes] == [
        ("Linear", {"alpha": 2.0, "beta": 1.0}),
        ("RoundThrough", {}),
    ]
