"""vmap's three ways, autocast's three policies, and inlining under torch.compile, for operators without kernels."""

import warnings

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import oneop
from oneop.errors import CallError, DefinitionError


@oneop.op("transforms::unmappable")
def unmappable(x: Float[Tensor, "n"], *, factor: float = 1.0) -> Float[Tensor, "n"]:
    return x * factor if x.sum().item() > 0 else x * 0


@oneop.op("transforms::positive")
def positive(x: Float[Tensor, "n"]) -> Float[Tensor, "?k"]:
    return x[x > 0]


def linear_body(x: Float[Tensor, "n k"], w: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    return x @ w.T


promote = oneop.op("transforms::promote")(linear_body)
lower = oneop.op("transforms::lower", autocast="lower")(linear_body)
upper = oneop.op("transforms::upper", autocast="float32")(linear_body)


@oneop.op("transforms::inlined", inline=True)
def inlined(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
    return torch.relu(alpha * x)


@oneop.op("transforms::opaque")
def opaque(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
    return torch.relu(alpha * x)


def test_a_reference_that_cannot_be_mapped_runs_in_a_loop_and_says_so_once():
    x = torch.tensor([[1.0, 2.0], [-3.0, 1.0]])
    with pytest.warns(UserWarning, match=r"transforms::unmappable: torch.vmap runs this operator in a loop") as caught:
        y = torch.func.vmap(lambda x: unmappable(x, factor=2.0))(x)
    assert y.tolist() == [[2, 4], [0, 0]]
    assert len(caught) == 1
    assert "Give its inputs and outputs a leading group `*batch`" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.func.vmap(unmappable)(x)
        nested = torch.func.vmap(torch.func.vmap(unmappable))(torch.stack([x, -x]))
    assert nested.tolist() == [[[1, 2], [0, 0]], [[0, 0], [3, -1]]]


def test_elements_of_different_shapes_make_no_tensor():
    x = torch.tensor([[1.0, 2.0], [-3.0, 1.0]])
    with pytest.raises(CallError) as caught, pytest.warns(UserWarning, match="in a loop"):
        torch.func.vmap(positive)(x)
    assert (
        str(caught.value)
        == "transforms::positive: under torch.vmap the elements give outputs of different shapes, (1,) and (2,), which"
        " make no tensor. Call the operator in a loop of your own."
    )
    assert torch.func.vmap(positive)(x.abs()).tolist() == [[1, 2], [3, 1]]


def test_autocast_brings_mixed_inputs_to_one_dtype_by_the_policy():
    x, w = torch.randn(2, 3, dtype=torch.bfloat16), torch.randn(4, 3)
    with pytest.raises(CallError, match="input `w` is float32, and Float is bfloat16 here"):
        promote(x, w)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert promote(x, w).dtype == torch.float32
        assert lower(x, w).dtype == torch.bfloat16
        assert upper(x, w.bfloat16()).dtype == torch.float32
        assert promote(x, w.bfloat16()).dtype == torch.bfloat16
        assert lower(x.double(), w.double()).dtype == torch.float64
        lowered, promoted = lower(x, w), promote(x, w)
    torch.testing.assert_close(lowered, x @ w.bfloat16().T)
    torch.testing.assert_close(promoted, x.float() @ w.T)


def test_autocast_has_gradients_in_the_dtypes_of_the_inputs():
    x = torch.randn(2, 3, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(4, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = lower(x, w)
    y.sum().backward()
    assert (x.grad.dtype, w.grad.dtype) == (torch.bfloat16, torch.float32)


def test_cuda_autocast_has_the_rule_too():
    for key in ("AutocastCPU", "AutocastCUDA"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key("transforms::lower", key)


def graph_of(function, *args):
    seen = []

    def backend(graph, inputs):
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd

        def compiler(module, _):
            seen.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
            return make_boxed_func(module)

        return aot_autograd(fw_compiler=compiler)(graph, inputs)

    torch._dynamo.reset()
    torch.compile(function, fullgraph=True, backend=backend)(*args)
    return seen


def test_inlining_shows_the_compiler_the_reference():
    x = torch.randn(4)
    assert "transforms.opaque.default" in graph_of(lambda x: opaque(x, alpha=2.0), x)
    targets = graph_of(lambda x: inlined(x, alpha=2.0), x)
    assert "aten.relu.default" in targets
    assert not [target for target in targets if target.startswith("transforms.")]


def test_inlined_operators_are_exported_as_operators():
    class Model(torch.nn.Module):
        def forward(self, x):
            return inlined(x, alpha=2.0)

    graph = torch.export.export(Model(), (torch.randn(3),)).graph
    assert "transforms.inlined.default" in [str(node.target) for node in graph.nodes]


def test_words_that_are_not_known():
    def f(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]: ...

    def refusal(**options):
        with pytest.raises(DefinitionError) as caught:
            oneop.op("transforms::options", **options)(f)
        return str(caught.value)

    assert (
        refusal(autocast="half")
        == "transforms::options: autocast='half' is not known. Write one of 'promote', 'lower', 'float32'."
    )
    assert (
        refusal(inline=True, kernels=["x.cpp"])
        == "transforms::options: inline=True is for operators without kernels. Remove it, or the kernels."
    )
    with pytest.raises(DefinitionError, match=r"inline=True shows torch.compile the reference"):
        inlined.gradient(lambda grad, x, *, alpha: None)


@oneop.op("transforms::detaching")
def detaching(x: Float[Tensor, "n"], w: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return 2 * x.detach() + w.detach()


def test_a_reference_that_is_not_differentiable_never_gives_zeros():
    x, w = torch.randn(3), torch.randn(3)
    backward = (
        "transforms::detaching: its reference is not differentiable: no output depends on an input in a way autograd"
        " can follow (.detach(), .item(), .data or no_grad in it). Give the operator a gradient, or call it on detached"
        " inputs."
    )
    forward = (
        "transforms::detaching: its reference is not differentiable in forward mode: no output depends on an input in a"
        " way autograd can follow (.detach(), .item(), .data or no_grad in it). Call it on inputs without tangents."
    )

    def said(call):
        with pytest.raises(CallError) as caught:
            call()
        return str(caught.value)

    assert said(lambda: detaching(x.clone().requires_grad_(), w)) == backward
    assert said(lambda: torch.func.grad(lambda x: detaching(x, w).sum())(x)) == backward
    assert said(lambda: torch.func.jvp(lambda x: detaching(x, w), (x,), (x,))) == forward
    assert said(lambda: torch.func.jacfwd(lambda x: detaching(x, w))(x)) == forward
    with torch.no_grad():
        torch.testing.assert_close(detaching(x.clone().requires_grad_(), w), 2 * x + w)
    torch.testing.assert_close(detaching(x, w), 2 * x + w)


def test_vmap_over_an_attribute_is_refused():
    with pytest.raises(CallError, match="attribute `alpha` is Tensor, not float"):
        torch.func.vmap(lambda a: opaque(torch.ones(2), alpha=a))(torch.ones(3))
