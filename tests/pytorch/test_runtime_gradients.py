"""Gradients of operators with kernels: right in every order and transform, and only those that are asked for."""

import gc
import resource
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch import runtime_operators as ops
from torch import Tensor
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing import assert_close

import oneop

Case = tuple[oneop.Operator, Callable[..., Any], Callable[[], tuple[Tensor, ...]]]


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


INDEX = torch.tensor([2, 0, 2])

CASES: dict[str, Case] = {
    "kernels": (ops.muladd, lambda op, x, w: op(x, w, alpha=2.0), lambda: (numbers(2, 3), numbers(2, 3))),
    "python": (ops.product, lambda op, x, y: op(x, y), lambda: (numbers(4), numbers(4))),
    "optional": (ops.product, lambda op, x, y, z: op(x, y, z), lambda: (numbers(4), numbers(4), numbers(4))),
    "derived": (ops.shifted, lambda op, x: op(x), lambda: (numbers(2, 3),)),
    "derived, optional": (ops.shifted, lambda op, x, b: op(x, b), lambda: (numbers(2, 3), numbers(3))),
    "variadic": (ops.total, lambda op, *xs: op(list(xs), scale=3.0), lambda: (numbers(3), numbers(3), numbers(3))),
    "integer output": (ops.largest, lambda op, x: op(x)[0], lambda: (numbers(5),)),
    "saved output": (ops.exponential, lambda op, x: op(x), lambda: (numbers(4),)),
    "derived, two outputs": (ops.parts, lambda op, x: torch.stack(tuple(op(x))), lambda: (numbers(4),)),
    "derived, one of two": (ops.parts, lambda op, x: op(x)[1], lambda: (numbers(4),)),
    "integer input": (ops.gather, lambda op, x: op(x, INDEX), lambda: (numbers(3, 2),)),
    "strided": (ops.transpose, lambda op, x: op(x), lambda: (numbers(2, 3, 2),)),
    "parallel": (ops.rows, lambda op, x: op(x), lambda: (numbers(3, 2),)),
    "unknown size": (ops.find, lambda op, x: op(x)[0], lambda: (numbers(4),)),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]:
    """The operator and its reference as functions of float64 tensors, and such tensors."""
    torch.manual_seed(0)
    operator, call, make = CASES[request.param]
    inputs = make()
    call(operator, *inputs)  # builds and attaches
    return lambda *args: call(operator, *args), lambda *args: call(operator.reference, *args), inputs


def leaves(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor.clone().requires_grad_() for tensor in inputs)


def test_first_and_second_order(case: Any) -> None:
    function, reference, inputs = case
    assert_close(function(*inputs), reference(*inputs))
    assert torch.autograd.gradcheck(function, leaves(inputs))
    assert torch.autograd.gradgradcheck(function, leaves(inputs))


def test_third_order(case: Any) -> None:
    function, reference, inputs = case

    def third(f: Callable[..., Tensor]) -> Tensor:
        variables = leaves(inputs)
        value = (f(*variables) ** 3).sum()
        for _ in range(3):
            (first,) = torch.autograd.grad(value, variables[0], create_graph=True)
            value = (first**2).sum()
        return value

    assert_close(third(function), third(reference))


def test_transforms(case: Any) -> None:
    function, reference, inputs = case
    rest = inputs[1:]

    def of(f: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: (f(x, *rest) ** 2).sum()

    f, g, x = of(function), of(reference), inputs[0]
    for transform in (grad, jacrev, jacfwd, hessian):
        assert_close(transform(f)(x), transform(g)(x))
    assert_close(jacfwd(jacfwd(f))(x), jacfwd(jacfwd(g))(x))
    assert_close(jacrev(jacrev(f))(x), jacrev(jacrev(g))(x))
    assert_close(jacrev(jacfwd(f))(x), jacrev(jacfwd(g))(x))
    assert_close(jvp(f, (x,), (x,)), jvp(g, (x,), (x,)))
    assert_close(vjp(f, x)[1](torch.tensor(2.0).double()), vjp(g, x)[1](torch.tensor(2.0).double()))
    assert_close(jvp(grad(f), (x,), (x,)), jvp(grad(g), (x,), (x,)))
    assert_close(grad(lambda x: grad(f)(x).sum())(x), grad(lambda x: grad(g)(x).sum())(x))


def test_results_of_transforms_hold_no_graph(case: Any) -> None:
    function, _, inputs = case
    rest = inputs[1:]
    assert not jacrev(lambda x: function(x, *rest))(inputs[0]).requires_grad
    assert not vjp(lambda x: function(x, *rest).sum(), inputs[0])[1](torch.tensor(1.0).double())[0].requires_grad


def test_transforms_inside_autograd(case: Any) -> None:
    function, reference, inputs = case
    rest = inputs[1:]

    def outer(f: Callable[..., Tensor], transform: Callable[..., Any]) -> Tensor:
        x = inputs[0].clone().requires_grad_()
        value = transform(lambda x: (f(x, *rest) ** 2).sum())(x)
        return torch.autograd.grad((value**2).sum(), x)[0]

    for transform in (grad, jacrev, jacfwd):
        assert_close(outer(function, transform), outer(reference, transform))


def test_forward_mode(case: Any) -> None:
    function, reference, inputs = case
    with torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)) for x in inputs]
        tangents = [torch.autograd.forward_ad.unpack_dual(f(*duals)).tangent for f in (function, reference)]
    assert_close(*tangents)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"unknown size"}))
def test_vmap(name: str) -> None:
    operator, call, make = CASES[name]
    inputs = tuple(torch.stack([x, 2 * x]) for x in make())
    mapped, expected = (vmap(lambda *a, f=f: call(f, *a))(*inputs) for f in (operator, operator.reference))
    assert_close(mapped, expected)
    per_sample, wanted = (
        vmap(grad(lambda *a, f=f: (call(f, *a) ** 2).sum()))(*inputs) for f in (operator, operator.reference)
    )
    assert_close(per_sample, wanted)


@pytest.mark.parametrize("name", CASES)
def test_opcheck(name: str) -> None:
    operator, call, make = CASES[name]
    recorded: list[tuple[Any, Any]] = []
    call(lambda *args, **kwargs: recorded.append((args, kwargs)) or operator(*args, **kwargs), *leaves(make()))
    ((args, kwargs),) = recorded
    torch.library.opcheck(operator.torch_op, args, kwargs)


@pytest.mark.parametrize("name", CASES)
def test_compile(name: str) -> None:
    operator, call, make = CASES[name]
    torch.manual_seed(0)
    inputs = make()
    torch._dynamo.reset()
    compiled = torch.compile(lambda *args: call(operator, *args).sin(), fullgraph=True, backend="aot_eager")

    def both(f: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        variables = leaves(inputs)
        out = f(*variables)
        return out, *torch.autograd.grad(out.sum(), variables)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert_close(both(compiled), both(lambda *args: call(operator.reference, *args).sin()))


def test_only_the_gradients_that_are_asked_for() -> None:
    x, y, z = (tensor.float() for tensor in leaves((numbers(3), numbers(3), numbers(3))))
    ops.needs_seen.clear()
    out = ops.product(x, y, z)
    for asked in ([x], [y], [z, x], [x, y, z]):
        torch.autograd.grad(out.sum(), asked, retain_graph=True)
    torch.autograd.grad(ops.product(x, y.detach()).sum(), x)
    assert ops.needs_seen == [1, 2, 5, 7, 1]


def test_gradients_that_are_views_of_one_number() -> None:
    x, w = leaves((numbers(3, 4), numbers(3, 4)))
    out = ops.muladd(x, w)
    for gradient in (torch.ones(()).double().expand(3, 4), numbers(4, 3).T, numbers(6, 8)[::2, ::2]):
        found = torch.autograd.grad(out, (x, w), gradient, retain_graph=True)
        assert_close(found, (gradient * w, gradient * x))


def test_an_input_that_was_computed_from_another_counts_once() -> None:
    (x,) = leaves((numbers(2, 3),))
    bias = x.sum(0)
    (found,) = torch.autograd.grad((ops.shifted(x, bias) ** 2).sum(), x)
    (wanted,) = torch.autograd.grad(((x.sin() + x.sum(0)) ** 2).sum(), x)
    assert_close(found, wanted)
    (same,) = torch.autograd.grad(ops.muladd(x, x).sum(), x)
    assert_close(same, 2 * x)


def test_a_gradient_for_some_tensors_of_a_list() -> None:
    x, y = leaves((numbers(3), numbers(3)))
    assert_close(torch.autograd.grad(ops.total([x, y.detach(), y], scale=2.0).sum(), y), (torch.full_like(y, 2.0),))


def test_what_cannot_have_a_gradient_has_none() -> None:
    found = ops.largest(numbers(3).requires_grad_())
    assert found.value.requires_grad
    assert not found.index.requires_grad
    with torch.no_grad():
        assert not ops.muladd(*leaves((numbers(3), numbers(3)))).requires_grad
    with torch.inference_mode():
        assert ops.muladd(numbers(3), numbers(3)).is_inference()


def test_pytorchs_own_errors_are_kept() -> None:
    x, w = leaves((numbers(3), numbers(3)))
    y = x * 1
    out = ops.muladd(y, w).sum()
    out.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()
    out = ops.muladd(y.detach().requires_grad_() * 1, w)
    z = x * 1
    out = ops.muladd(z, w)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    assert out.grad_fn is not None
    assert out.grad_fn.name() == "runtime::muladd backward"


def test_errors_in_backward_arrive_as_call_errors() -> None:
    x = torch.ones(3, requires_grad=True)
    out = ops.native(x)
    with pytest.raises(oneop.CallError, match=r"runtime::native has no gradient: it has no reference \(native_only\)"):
        out.sum().backward()
    with pytest.raises(oneop.CallError, match="runtime::native"), torch.autograd.forward_ad.dual_level():
        ops.native(torch.autograd.forward_ad.make_dual(torch.ones(3), torch.ones(3)))


def test_checkpoint_saved_tensor_hooks_and_functional_call() -> None:
    x, w = leaves((numbers(3), numbers(3)))
    wanted = (2 * w.detach(), 2 * x.detach())
    out = torch.utils.checkpoint.checkpoint(lambda a, b: ops.muladd(a, b, alpha=2.0), x, w, use_reentrant=False)
    assert_close(torch.autograd.grad(out.sum(), (x, w)), wanted)
    packed: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t.clone(), lambda t: t):
        out = ops.muladd(x, w, alpha=2.0)
    assert len(packed) == 2
    assert_close(torch.autograd.grad(out.sum(), (x, w)), wanted)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(numbers(3))

        def forward(self, a: Tensor) -> Tensor:
            return ops.muladd(a, self.w, alpha=2.0)

    assert_close(grad(lambda p: functional_call(Layer(), p, (x,)).sum())({"w": w})["w"], 2 * x)


def test_a_list_of_a_gradient_operator_comes_back_as_a_list() -> None:
    assert ops.total.gradient_operator is not None
    xs = [numbers(2), numbers(2)]
    found = ops.total.gradient_operator(numbers(2).fill_(1.0), xs, scale=3.0)
    assert isinstance(found, list)
    assert_close(found, [torch.full_like(x, 3.0) for x in xs])


def test_autocast_does_not_reach_the_reference_in_backward() -> None:
    x, b = leaves((numbers(2, 3), numbers(3)))
    x, b = x.float().detach().requires_grad_(), b.float().detach().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = ops.shifted(x, b)
        found = torch.autograd.grad(out.float().sum(), (x, b))
    assert [tensor.dtype for tensor in found] == [torch.float32, torch.float32]


def resident() -> int:
    """Memory of this process now, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("name", ["kernels", "derived, optional", "variadic", "integer output"])
def test_memory_stays_flat(name: str) -> None:
    operator, call, make = CASES[name]
    inputs = tuple(torch.randn(100, 100, dtype=torch.float64) for _ in make()) if name == "kernels" else make()
    variables = leaves(inputs)

    def work(count: int) -> None:
        for _ in range(count):
            call(operator, *inputs)
            torch.autograd.grad(call(operator, *variables).sum(), variables)

    work(500)
    gc.collect()
    before = resident()
    work(5000)
    gc.collect()
    assert resident() - before < 4 << 20


def test_a_dtype_without_a_kernel_has_gradients_too() -> None:
    """Of the reference: derived, and written."""
    x = torch.randn(2, 3, dtype=torch.bfloat16, requires_grad=True)
    ops.shifted(x).sum().backward()
    assert_close(x.grad, x.detach().cos())
    y = torch.randn(2, 3, dtype=torch.bfloat16, requires_grad=True)
    ops.muladd(y, x.detach(), alpha=2.0).sum().backward()
    assert_close(y.grad, 2 * x.detach())
