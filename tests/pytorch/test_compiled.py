"""Operators under torch.compile: a training step, and float attributes that change from call to call."""

import copy
import math

import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import oneop
from gallery.gallery import EXAMPLES, cube, every_attribute, linear, moments, plain, same, soft, total, written
from oneop.errors import CallError

VALUES = (1.5, 0.25, -3.0, 4.5, math.inf, -0.0)


@oneop.op("compiled::python_float")
def python_float(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
    """Does with its float what a tensor cannot."""
    return x * x * math.exp(-abs(alpha)) if alpha > 0 else x * math.floor(max(alpha, -9))


@oneop.op("compiled::sum_of_squares", inline=True)
def inlined(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]:
    return alpha * x * x


class Model(torch.nn.Module):
    """Several operators in one graph: several outputs, a list of inputs, an output that would alias its input."""

    def __init__(self, *, reference: bool = False) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 5, dtype=torch.float64)
        self.weight = torch.nn.Parameter(torch.randn(4, 5, dtype=torch.float64))
        self.scale = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
        self.reference = reference

    def call(self, op, *args, **kwargs):
        return op.reference(*args, **kwargs) if self.reference else op(*args, **kwargs)

    def forward(self, x: Tensor, alpha: float) -> Tensor:
        hidden = self.call(same, torch.tanh(self.first(x)))
        y = self.call(linear, hidden, self.weight, None, alpha=alpha, beta=1.0)
        probability = self.call(soft, y)
        mixed = self.call(total, self.scale, [probability, y, hidden[:, :4]])
        mean, _, spread = self.call(moments, mixed)
        return (self.call(plain, mean, alpha=0.5) ** 2).mean() + spread.mean()


def reference_of(model: Model) -> Model:
    twin = copy.deepcopy(model)
    twin.reference = True
    return twin


def batches():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, 6, dtype=torch.float64, generator=generator) for size in (6, 9, 7, 12)]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_training_step(backend):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Model()
    twin = reference_of(model)
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    optimizer, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, twin))
    step = torch.compile(optimizer.step, backend=backend)
    for number, batch in enumerate(batches()):
        alpha = 1.0 + 0.1 * number
        loss, expected = compiled(batch, alpha), twin(batch, alpha)
        torch.testing.assert_close(loss, expected)
        loss.backward()
        expected.backward()
        step()
        other.step()
        optimizer.zero_grad()
        other.zero_grad()
        torch.testing.assert_close([*model.parameters()], [*twin.parameters()])
    assert counter.frame_count == 2  # one for static sizes and alpha, one for dynamic ones


def test_a_step_that_is_one_graph():
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Model()
    twin = reference_of(model)

    def step_of(module):
        def step(parameters, batch):
            def loss(parameters):
                return torch.func.functional_call(module, parameters, (batch, 1.5))

            gradients, value = torch.func.grad_and_value(loss)(parameters)
            return {name: p - 0.1 * gradients[name] for name, p in parameters.items()}, value

        return step

    step, other = torch.compile(step_of(model), fullgraph=True), step_of(twin)
    mine = theirs = {name: p.detach() for name, p in model.named_parameters()}
    for batch in batches():
        mine, value = step(mine, batch)
        theirs, expected = other(theirs, batch)
        torch.testing.assert_close((mine, value), (theirs, expected))


def expected_of(op, inputs, attributes):
    defaults = {
        item.name: list(item.default) if isinstance(item.default, tuple) else item.default
        for item in op.definition.attributes
        if not item.is_required
    }
    return op.reference(*inputs, **{**defaults, **attributes})


CHANGING = [
    (plain, ["alpha"]),
    (written, ["alpha"]),
    (cube, ["alpha"]),
    (linear, ["beta", "alpha"]),
    (every_attribute, ["extra", "scale"]),
    (python_float, ["alpha"]),
    (inlined, ["alpha"]),
]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(("op", "names"), CHANGING, ids=lambda value: getattr(value, "__name__", ""))
def test_a_float_that_changes_compiles_twice(op, names, backend):
    torch._dynamo.reset()
    example = next((e for e in EXAMPLES if e.op is op), EXAMPLES[0])
    inputs = [value.requires_grad_() for value in example.inputs()]
    counter = CompileCounterWithBackend(backend)

    def function(value: float):
        return op(*inputs, **{name: value + place for place, name in enumerate(names)})

    compiled = torch.compile(function, fullgraph=True, backend=counter)
    for value in VALUES:
        mine = compiled(value)
        theirs = expected_of(op, inputs, {name: value + place for place, name in enumerate(names)})
        torch.testing.assert_close(mine, theirs, equal_nan=True)
        pairs = [torch.autograd.grad(y.sin().sum(), inputs) for y in (mine, theirs)]
        torch.testing.assert_close(*pairs, equal_nan=True)
    assert counter.frame_count == 2


@oneop.op("compiled::several")
def several(
    x: Float[Tensor, "n"], unused: Float[Tensor, "n"], ys: list[Float[Tensor, "n"]], *, alpha: float = 1.0
) -> Float[Tensor, "n"]:
    """Its derivative by x is the incoming gradient itself, and so are those by ys; unused has none."""
    return x + sum(ys) + alpha


def test_derived_gradients_share_no_memory_and_unused_inputs_get_zeros():
    x, y, z, unused = (torch.randn(3, requires_grad=True) for _ in range(4))
    out = torch.ops.compiled.several.scalars(x, unused, [y, z], scalars=torch.tensor([2.0]).double(), which=1)
    torch.testing.assert_close(out, x + y + z + 2)
    incoming = torch.ones(3)
    found = torch.autograd.grad(out, (x, y, z, unused), incoming)
    torch.testing.assert_close(found, (incoming, incoming, incoming, torch.zeros(3)))
    assert len({t.data_ptr() for t in (*found, incoming)}) == 5
    half = torch.ops.compiled.several.scalars(x, unused, [y.detach(), z], scalars=torch.tensor([2.0]).double(), which=1)
    torch.testing.assert_close(torch.autograd.grad(half, (z,), incoming), (incoming,))


@oneop.op("compiled::derived_linear")
def derived_linear(
    x: Float[Tensor, "n k"], weight: Float[Tensor, "m k"], *, alpha: float = 1.0
) -> Float[Tensor, "n m"]:
    return alpha * x @ weight.T


@pytest.mark.parametrize("transposed", [0, 1])
def test_derived_gradients_of_views_lie_as_the_compiled_code_expects(transposed: int) -> None:
    """It looks: the gradient of a transposed tensor came transposed."""
    torch._dynamo.reset()
    inputs = [torch.randn(2, 2, dtype=torch.float64), torch.randn(2, 2, dtype=torch.float64)]
    inputs[transposed] = inputs[transposed].mT.contiguous().mT

    def gradients(call, alpha):
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        return torch.autograd.grad(call(*leaves, alpha=alpha).square().sum(), leaves)

    compiled = torch.compile(
        lambda x, weight, alpha: derived_linear(x, weight, alpha=alpha), fullgraph=True, dynamic=True
    )
    for alpha in (0.7, 0.9, 1.1):  # a float that changes is an input of the graph
        for one, other in zip(gradients(compiled, alpha), gradients(derived_linear.reference, alpha), strict=True):
            torch.testing.assert_close(one, other)


def test_without_gradients_and_with_dynamic_sizes():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(lambda x, alpha: cube(x, alpha=alpha), fullgraph=True, dynamic=True, backend=counter)
    for size, alpha in enumerate(VALUES[:4], start=2):
        x = torch.randn(size, size + 1)
        torch.testing.assert_close(compiled(x, alpha), x**3 + alpha)
    assert counter.frame_count == 1


def test_autocast_applies_there_too():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w, alpha: linear(x, w, alpha=alpha), fullgraph=True, backend="aot_eager")
    x, w = torch.randn(2, 3, dtype=torch.bfloat16), torch.randn(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for alpha in VALUES[:4]:
            y = compiled(x, w, alpha)
            with torch.autocast("cpu", enabled=False):
                torch.testing.assert_close(y, alpha * (x.float() @ w.T))


@pytest.mark.parametrize("op", [plain, written], ids=["derived", "written"])
def test_transforms_inside_take_the_operator_itself(op):
    torch._dynamo.reset()
    x, many = torch.randn(4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)

    def transforms(function):
        def loss(x, alpha):
            return function(x, alpha=alpha).sum()

        def second(x, alpha):
            return torch.func.grad(lambda x: torch.func.grad(loss)(x, alpha).sum())(x)

        return lambda alpha: (
            second(x, alpha),
            torch.func.vmap(lambda x: torch.func.grad(loss)(x, alpha))(many),
        )

    mine = torch.compile(transforms(op), fullgraph=True, backend="aot_eager")
    for alpha in VALUES[:3]:
        torch.testing.assert_close(mine(alpha), transforms(op.reference)(alpha))


def test_what_the_overload_cannot_do_is_refused():
    def message(what: str) -> str:
        return (
            f"gallery::plain: torch.compile passes a float attribute that changes from call to call as a tensor, and"
            f" {what} does not support that. Set torch._dynamo.config.specialize_float = True, which compiles once for"
            " each value."
        )

    x, scalars = torch.randn(4, requires_grad=True), torch.tensor([2.0], dtype=torch.float64)
    overload = torch.ops.gallery.plain.scalars
    with pytest.raises(CallError) as caught:
        torch.autograd.grad(overload(x, scalars=scalars, which=1).sum(), x, create_graph=True)
    assert str(caught.value) == message("a second derivative")
    with torch.autograd.forward_ad.dual_level(), pytest.raises(CallError) as caught:
        overload(torch.autograd.forward_ad.make_dual(x.detach(), x.detach()), scalars=scalars, which=1)
    assert str(caught.value) == message("forward mode")


@pytest.mark.parametrize("op", [plain, written, linear, every_attribute], ids=lambda op: op.__name__)
def test_opcheck_of_the_overload(op):
    example = next(e for e in EXAMPLES if e.op is op)
    bit, name = op.float_attributes[0]
    scalars = {"scalars": torch.tensor([0.5], dtype=torch.float64), "which": bit}
    attributes = {**op._unsaid, **example.attributes, name: 0.0, **scalars}
    torch.library.opcheck(
        op.torch_op.overloadpacket.scalars, tuple(t.requires_grad_() for t in example.inputs()), attributes
    )
