"""Operators without kernels: eager calls, gradients, tracing, transforms, and what bad calls are told."""

import copy
import pickle
from typing import Literal, NamedTuple

import pytest
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

import oneop
from oneop.errors import CallError, DefinitionError


@oneop.op("pyop::linear")
def linear(
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


@oneop.op("pyop::linear_written")
def linear_written(
    x: Float[Tensor, "n k"],
    weight: Float[Tensor, "m k"],
    bias: Float[Tensor, "m"] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, "n m"]:
    return linear.reference(x, weight, bias, alpha=alpha, beta=beta)


needs_seen: list[int] = []


@linear_written.gradient
def linear_written_grad(grad, x, weight, bias, *, alpha, beta, needs):
    needs_seen.append(needs)
    return alpha * grad @ weight, alpha * grad.T @ x, None if bias is None else beta * grad.sum(0)


class Statistics(NamedTuple):
    mean: Float[Tensor, "n"]
    largest: Int64[Tensor, "n"]
    spread: Float[Tensor, "n"]


@oneop.op("pyop::statistics")
def statistics(x: Float[Tensor, "n m"], *, power: int = 2) -> Statistics:
    mean = x.mean(1)
    return Statistics(mean, x.argmax(1), ((x - mean[:, None]) ** power).sum(1))


@statistics.gradient
def statistics_grad(grad_mean, grad_spread, x, mean, *, power):
    centred = x - mean[:, None]
    inner = power * centred ** (power - 1)
    return grad_mean[:, None] / x.shape[1] + grad_spread[:, None] * (inner - inner.mean(1, keepdim=True))


@oneop.op("pyop::weighted_sum")
def weighted_sum(scale: Float[Tensor, ""], xs: list[Float[Tensor, "*batch n"]]) -> Float[Tensor, "*batch n"]:
    return scale * sum(xs[1:], xs[0])


@weighted_sum.gradient
def weighted_sum_grad(grad, scale, xs):
    return (grad * sum(xs[1:], xs[0])).sum(), [scale * grad for _ in xs]


@oneop.op("pyop::above")
def above(x: Float[Tensor, "n m"], *, threshold: float = 0.0) -> Float[Tensor, "?k m"]:
    return x[x.sum(1) > threshold]


@oneop.op("pyop::window")
def window(
    x: Float[Tensor, "*batch n"], *, size: int, mode: Literal["mean", "max"] = "mean", names: list[str] = ("a",)
) -> Float[Tensor, "*batch n-size+1"]:
    unfolded = x.unfold(-1, size, 1)
    return unfolded.mean(-1) if mode == "mean" else unfolded.max(-1).values


@oneop.op("pyop::identity")
def identity(x: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
    return x


@oneop.op("pyop::gather")
def gather(x: Float[Tensor, "n m"], index: Int[Tensor, "k"]) -> Float[Tensor, "k m"]:
    return x[index.long()]


def randn(*shape, requires_grad=True):
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_(requires_grad)


CASES = {
    "linear": (linear, (randn(3, 4), randn(5, 4), randn(5)), {"alpha": 2.0, "beta": 0.5}),
    "linear without bias": (linear, (randn(3, 4), randn(5, 4)), {"alpha": 2.0}),
    "linear_written": (linear_written, (randn(3, 4), randn(5, 4), randn(5)), {"alpha": 2.0, "beta": 0.5}),
    "linear_written without bias": (linear_written, (randn(3, 4), randn(5, 4), None), {}),
    "statistics": (statistics, (randn(3, 6),), {"power": 3}),
    "weighted_sum": (weighted_sum, (randn(), [randn(2, 3), randn(2, 3)]), {}),
    "window": (window, (randn(2, 2, 5),), {"size": 2, "mode": "mean"}),
    "identity": (identity, (randn(2, 3),), {}),
    "gather": (gather, (randn(4, 2), torch.tensor([0, 3, 3])), {}),
}
cases = pytest.mark.parametrize(("op", "inputs", "attributes"), CASES.values(), ids=CASES.keys())


def tensors(inputs):
    return [t for item in inputs for t in (item if isinstance(item, list) else [item]) if isinstance(t, Tensor)]


def rebuild(inputs, flat):
    rest = list(flat)
    return [
        [rest.pop(0) for _ in item] if isinstance(item, list) else rest.pop(0) if isinstance(item, Tensor) else item
        for item in inputs
    ]


def floating(result):
    return tuple(t for t in (result if isinstance(result, tuple) else (result,)) if t.dtype.is_floating_point)


@cases
def test_values_are_those_of_the_reference(op, inputs, attributes):
    torch.testing.assert_close(op(*inputs, **attributes), op.reference(*inputs, **attributes), rtol=0, atol=0)
    through_torch = getattr(torch.ops.pyop, op.definition.base)(*inputs, **{**attributes, **op._unsaid})
    assert type(op(*inputs, **attributes)) is (op.output_type or Tensor)
    torch.testing.assert_close(tuple(floating(through_torch)), floating(op(*inputs, **attributes)), rtol=0, atol=0)


@cases
def test_first_and_second_gradients(op, inputs, attributes):
    flat = tensors(inputs)

    def call(*given):
        return floating(op(*rebuild(inputs, given), **attributes))

    assert torch.autograd.gradcheck(call, flat)
    assert torch.autograd.gradgradcheck(call, flat)


@cases
def test_opcheck(op, inputs, attributes):
    torch.library.opcheck(op.torch_op, tuple(inputs), {**op._unsaid, **attributes})


@cases
def test_compiled_training_step(op, inputs, attributes):
    def step(*given):
        return sum(t.square().sum() for t in floating(op(*rebuild(inputs, given), **attributes)))

    torch._dynamo.reset()
    flat = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors(inputs)]
    needed = [t for t in flat if t.requires_grad]
    eager = torch.autograd.grad(step(*flat), needed)
    compiled = torch.autograd.grad(torch.compile(step, fullgraph=True, backend="aot_eager")(*flat), needed)
    torch.testing.assert_close(compiled, eager)


def test_inductor_compiles_it_with_dynamic_shapes():
    compiled = torch.compile(lambda x, w: linear(x, w, alpha=2.0).relu(), fullgraph=True, dynamic=True)
    for n in (3, 7):
        x, w = randn(n, 4), randn(5, 4)
        torch.testing.assert_close(compiled(x, w), (2 * x @ w.T).relu())


@cases
def test_transforms_agree_with_the_reference(op, inputs, attributes):
    flat = [t.detach() for t in tensors(inputs)]
    where = next(i for i, t in enumerate(flat) if t.dtype.is_floating_point)

    def with_op(function):
        def loss(x):
            given = rebuild(inputs, [*flat[:where], x, *flat[where + 1 :]])
            return sum(t.pow(3).sum() for t in floating(function(*given, **attributes)))

        return loss

    mine, theirs, x = with_op(op), with_op(op.reference), flat[where]
    tangent = torch.ones_like(x)
    for transform in (torch.func.grad, torch.func.hessian, torch.func.jacfwd, torch.func.jacrev):
        torch.testing.assert_close(transform(mine)(x), transform(theirs)(x))
    torch.testing.assert_close(torch.func.jvp(mine, (x,), (tangent,)), torch.func.jvp(theirs, (x,), (tangent,)))
    many = torch.stack([x, 2 * x])
    torch.testing.assert_close(torch.func.vmap(mine)(many), torch.func.vmap(theirs)(many))
    torch.testing.assert_close(
        torch.func.vmap(torch.func.grad(mine))(many), torch.func.vmap(torch.func.grad(theirs))(many)
    )


def test_export_keeps_the_operator_and_dynamic_sizes():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(5, 4))

        def forward(self, x):
            return statistics(linear_written(x, self.weight, alpha=2.0)).spread

    batch = torch.export.Dim("batch")
    exported = torch.export.export(Model(), (torch.randn(3, 4),), dynamic_shapes=({0: batch},))
    for program in (exported, exported.run_decompositions()):
        targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
        assert targets[0] == "pyop.linear_written.default"
        assert "pyop.statistics.default" in targets
        assert program.module()(torch.ones(7, 4)).shape == (7,)


def test_sizes_that_only_the_data_decide():
    x = torch.tensor([[1.0, 1.0], [-3.0, 1.0], [0.5, 0.0]], requires_grad=True)
    y = above(x)
    assert y.tolist() == [[1.0, 1.0], [0.5, 0.0]]
    y.sum().backward()
    assert x.grad.tolist() == [[1, 1], [0, 0], [1, 1]]
    exported = torch.export.export(_Above(), (x.detach(),))
    assert exported.module()(x.detach()).shape == (2, 2)


class _Above(torch.nn.Module):
    def forward(self, x):
        return above(x, threshold=0.0) * 2


def test_only_what_is_asked_for_is_said_to_be_needed():
    x, w, b = randn(3, 4), randn(5, 4), randn(5)
    needs_seen.clear()
    torch.autograd.grad(linear_written(x, w, b).sum(), [w])
    torch.autograd.grad(linear_written(x, w.detach(), b).sum(), [x, b])
    assert needs_seen == [0b010, 0b101]


def test_outputs_never_alias_inputs():
    x = randn(2, 3)
    with torch.no_grad():
        y = identity(x)
    assert y.data_ptr() != x.data_ptr()
    z = identity(x)
    assert z.data_ptr() != x.data_ptr()
    z.sum().backward()
    assert x.grad.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_operators_pickle_and_modules_copy():
    assert pickle.loads(pickle.dumps(linear)) is linear
    assert copy.deepcopy(linear) is linear
    assert repr(linear) == "<oneop.Operator pyop::linear>"
    assert linear.__doc__ == "alpha * x @ weight.T + beta * bias"


def message(call, error=CallError):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_calls_that_do_not_fit():
    x, w = randn(3, 4), randn(5, 4)
    usage = "The call is `linear(x, weight, bias=None, *, alpha=1.0, beta=1.0)`."
    assert message(lambda: linear(x)) == f"pyop::linear: input `weight` is missing. {usage}"
    assert message(lambda: linear(x, w, gamma=1.0)) == f"pyop::linear: there is no parameter `gamma`. {usage}"
    assert (
        message(lambda: linear(x, w, None, 2.0))
        == "pyop::linear: 4 positional arguments were given; there are 3 inputs (x, weight, bias). Pass attributes by"
        " name."
    )
    assert message(lambda: linear(x, w, x=x)) == "pyop::linear: input `x` was given twice. Pass it once."
    assert message(lambda: linear([1.0], w)) == "pyop::linear: input `x` is of type list, not a tensor. Pass a tensor."
    assert message(lambda: linear(x, None)) == "pyop::linear: input `weight` is None, not a tensor. Pass a tensor."
    assert (
        message(lambda: weighted_sum(randn(), []))
        == "pyop::weighted_sum: input `xs` is an empty list. Pass at least one tensor."
    )
    assert message(lambda: linear(x, w, alpha="2")) == "pyop::linear: attribute `alpha` is str, not float. Pass float."
    assert (
        message(lambda: linear(x, w, alpha=x[0, 0]))
        == "pyop::linear: attribute `alpha` is Tensor, not float. Pass float. If it is a value of your data, pass it"
        " as a "
        "number: `alpha=float(...)`."
    )
    assert (
        message(lambda: window(x))
        == "pyop::window: attribute `size` is missing. The call is `window(x, *, size, mode='mean', names=('a',))`."
    )
    assert (
        message(lambda: window(x, size=2, mode="min"))
        == "pyop::window: attribute `mode` is 'min', not one of 'mean', 'max'. Pass one of these."
    )
    assert (
        message(lambda: torch.ops.pyop.window(x, size=2, mode="min", names=[]))
        == "pyop::window: attribute `mode` is 'min', not one of 'mean', 'max'. Pass one of these."
    )


def test_tensors_that_do_not_fit():
    x, w = randn(3, 4), randn(5, 4)
    mixed = (
        "pyop::linear: input `weight` is float32, and Float is float64 here, from `x`. "
        "Convert one of them with `.to(...)`."
    )
    assert message(lambda: linear(x, w.float())) == mixed
    assert message(lambda: torch.ops.pyop.linear(x, w.float())) == mixed
    assert (
        message(lambda: linear(x.long(), w))
        == "pyop::linear: input `x` is int64; its definition is Float: float32, float64, float16, bfloat16. "
        "Convert it with `.to(...)`."
    )
    assert (
        message(lambda: linear(x, w.to("meta")))
        == "pyop::linear: input `weight` is on meta, and `x` is on cpu. Move one of them with `.to(...)`."
    )
    assert (
        message(lambda: linear(x, randn(5, 3)))
        == 'pyop::linear: input `weight` has shape (5, 3); its definition is "m k", and k is 4 here, from `x`. '
        "Pass a tensor that fits."
    )
    assert (
        message(lambda: window(randn(3), size=5))
        == "pyop::window: output `out` would have size -1 in dimension 0 (n-size+1), with n = 3, size = 5. "
        "Pass inputs and attributes that give a size of 0 or more."
    )


def test_a_reference_that_is_not_what_the_definition_says():
    @oneop.op("pyop::wrong")
    def wrong(x: Float[Tensor, "n"], *, how: str) -> Float[Tensor, "n"]:
        return {"shape": x[:1], "dtype": x.float(), "count": (x, x), "kind": 3.0}[how]

    x = randn(3)
    assert (
        message(lambda: wrong(x, how="shape"))
        == 'pyop::wrong: the reference returned shape (1,) for output `out`; its definition "n" gives (3,). '
        "Correct the reference or the annotation."
    )
    assert (
        message(lambda: wrong(x, how="dtype"))
        == "pyop::wrong: the reference returned float32 for output `out`; its definition Float gives float64. "
        "Correct the reference or the annotation."
    )
    assert (
        message(lambda: wrong(x, how="count"))
        == "pyop::wrong: the reference returned 2 values; the definition has 1 outputs (out). Return one tensor for"
        " each."
    )
    assert (
        message(lambda: wrong(x, how="kind"))
        == "pyop::wrong: the reference returned a float for output `out`. Return a tensor."
    )


def test_a_gradient_that_is_not_what_it_should_be():
    @oneop.op("pyop::product")
    def product(x: Float[Tensor, "n"], y: Float[Tensor, "n"] | None = None, *, how: str = "") -> Float[Tensor, "n"]:
        return x * 2 if y is None else x * y

    @product.gradient
    def product_grad(grad, x, y, *, how):
        right = (grad * (2 if y is None else y), None if y is None else grad * x)
        wrong = {"count": (grad,), "none": (None, right[1]), "shape": (grad[:1], right[1]), "absent": (right[0], grad)}
        return wrong.get(how, right)

    x, y = randn(3), randn(3)
    product(x, y).sum().backward()
    torch.testing.assert_close(x.grad, y)

    def backward(how, second=y):
        return lambda: product(x, second, how=how).sum().backward()

    assert (
        message(backward("count"))
        == "pyop::product_grad: the gradient function returned 1 values; the operator has 2 inputs (x, y). "
        "Return one for each, None where there is no gradient."
    )
    assert (
        message(backward("none"))
        == "pyop::product_grad: the gradient function returned None for input `x`, whose gradient is needed. "
        "Return its gradient (zeros_like if it is zero)."
    )
    assert (
        message(backward("shape"))
        == "pyop::product_grad: the gradient function returned float64 of shape (1,) for input `x`, which is"
        " float64 of "
        "shape (3,). Return a gradient of that shape and dtype."
    )
    assert (
        message(backward("absent", None))
        == "pyop::product_grad: the gradient function returned a gradient for input `y`, which is None in this call. "
        "Return None."
    )


def test_a_name_defined_twice():
    def define(scale, annotation):
        def twice(x, *, alpha: float = 1.0):
            return scale * alpha * x

        twice.__annotations__.update({"x": annotation, "return": annotation})
        return oneop.op("pyop::twice")(twice)

    one = torch.ones(2)
    first = define(1, Float[Tensor, "n"])
    assert first(one).tolist() == [1, 1]
    second = define(2, Float[Tensor, "n"])
    assert second(one).tolist() == [2, 2]
    assert torch.ops.pyop.twice(one).tolist() == [2, 2]
    text = message(lambda: define(3, Float[Tensor, "m n"]), DefinitionError)
    assert text.startswith("pyop::twice is defined twice with different signatures: first in ")
    assert text.endswith("Rename one of them; to change a signature, start a new process.")
    assert second(one).tolist() == [2, 2]


FOREIGN = torch.library.Library("pyop_foreign", "DEF")
"""Kept: a library that goes away takes its operator with it, and torch 2.11's ONNX exporter then finds half of one."""


def test_a_name_that_torch_has_already():
    FOREIGN.define("taken(Tensor x) -> Tensor")

    def taken(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return x

    text = message(lambda: oneop.op("pyop_foreign::taken")(taken), DefinitionError)
    assert (
        text == "pyop_foreign::taken: torch knows an operator of this name already, which oneop did not define. "
        "Choose another name."
    )
    assert "pyop_foreign::taken" not in oneop.registry.operators()


def test_options_that_make_no_sense():
    def f(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]: ...

    def refusal(**options):
        return message(lambda: oneop.op("pyop::options", **options)(f), DefinitionError)

    assert (
        refusal(kernels="f.cpp") == "pyop::options: kernels is 'f.cpp'; it is a list of files. Write kernels=['f.cpp']."
    )
    assert "native_only=True says that there is no reference, and there are no kernels" in refusal(native_only=True)
    assert "dtypes names 'float8', which oneop does not know" in refusal(dtypes=["float8"])
    assert (
        message(lambda: linear_written_grad.gradient(f), DefinitionError)
        == "pyop::linear_written_grad is a gradient itself. Its own gradient is derived from its body; remove"
        " `.gradient`."
    )


class Found(NamedTuple):
    where: Float[Tensor, "?k"]
    what: Float[Tensor, "?k"]


def test_one_name_is_one_size_in_a_reference_too():
    @oneop.op("pyop::found")
    def found(x: Float[Tensor, "n"], *, less: int = 0) -> Found:
        return Found(x[x > 0], x[x > 0][less:])

    x = torch.tensor([1.0, -1.0, 2.0])
    assert found(x).what.tolist() == [1.0, 2.0]
    assert message(lambda: found(x, less=1)) == (
        'pyop::found: the reference returned shape (1,) for output `what`; its definition is "?k", and k is 2 here,'
        " from `where`. Correct the reference or the annotation."
    )


def test_a_reference_that_changes_its_input_is_told_so():
    @oneop.op("pyop::changing")
    def changing(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        x.add_(1)
        return x * 1

    with torch.no_grad():
        assert message(lambda: changing(torch.zeros(2))) == (
            "pyop::changing: the reference changed its input `x` in place, and has changed the caller's tensor."
            " Write it without operations that end in `_`, or on a clone."
        )


def test_the_sign_of_zero_is_kept_or_refused():
    def define(name, default):
        def divide(x, *, a: float = default):
            return x / a

        divide.__annotations__.update({"x": Float[Tensor, "n"], "return": Float[Tensor, "n"]})
        return oneop.op(name)(divide)

    def exported(op, a):
        class Model(torch.nn.Module):
            def forward(self, x):
                return op(x, a=a)

        return torch.export.export(Model(), (one,)).module()(one).tolist()

    one = torch.ones(1)
    minus, plus = define("pyop::minus_zero", -0.0), define("pyop::plus_zero", 0.0)
    assert minus(one).tolist() == minus(one, a=-0.0).tolist() == exported(minus, -0.0) == [float("-inf")]
    assert minus(one, a=0.0).tolist() == exported(minus, 0.0) == [float("inf")]
    assert plus(one).tolist() == torch.ops.pyop.plus_zero(one).tolist() == exported(plus, 0.0) == [float("inf")]
    refusal = (
        "pyop::plus_zero: attribute `a` is -0.0, and PyTorch would pass its default 0.0, which compares equal."
        " Give the attribute another default, or none."
    )
    assert message(lambda: plus(one, a=-0.0)) == refusal
    assert message(lambda: exported(plus, -0.0)) == refusal


def test_defaults_that_the_schema_language_cannot_say_are_filled_in():
    @oneop.op("pyop::odd_defaults")
    def odd_defaults(
        x: Float[Tensor, "n"],
        *,
        tiny: float = 5e-324,
        huge: float = float("inf"),
        text: str = 'quo"te\n中',
        words: list[str] = ("a",),
    ) -> Float[Tensor, "n"]:
        return x + tiny * 0 + len(text) + len(words) + (1 if huge == float("inf") else 0)

    assert odd_defaults(torch.zeros(1)).item() == 10
    assert message(lambda: odd_defaults(torch.zeros(1), text="\udcff")) == (
        "pyop::odd_defaults: attribute `text` is not valid Unicode. Pass str."
    )


def test_more_parameters_than_torch_takes():
    names = [f"a{i}" for i in range(64)]
    code = f"def many(x, *, {', '.join(f'{name}: int = 1' for name in names)}): return x"
    scope = {}
    exec(code, scope)
    scope["many"].__annotations__.update({"x": Float[Tensor, "n"], "return": Float[Tensor, "n"]})
    assert message(lambda: oneop.op("pyop::many")(scope["many"]), DefinitionError) == (
        "pyop::many: it has 65 inputs and attributes, and PyTorch takes at most 64. Make some of them one: a list of"
        " tensors, or a list of numbers."
    )


def test_words_given_in_the_wrong_form():
    def f(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]: ...

    assert message(lambda: oneop.op(f), DefinitionError) == (
        'oneop.op takes the name of the operator, not function. Write @oneop.op("namespace::name") above the function.'
    )
    for word, value in {"flags": "-O1", "dtypes": "float32", "include_dirs": "abc", "libraries": "m"}.items():
        decorate = oneop.op("pyop::forms", **{word: value})
        assert message(lambda decorate=decorate: decorate(f), DefinitionError) == (
            f"pyop::forms: {word} is {value!r}; it is a list. Write {word}=[{value!r}]."
        )
    assert message(lambda: oneop.build(None, "onnxruntime", "."), oneop.BuildError).startswith(
        "oneop.build takes operators, or the path of a file that defines some, not NoneType."
    )
