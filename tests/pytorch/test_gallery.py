"""Every transform of PyTorch over every operator of the gallery, against its reference in float64."""

import functools
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from gallery.gallery import EXAMPLES, Example, every_attribute, gradient_counts, linear, soft, take
from oneop.errors import CallError
from oneop.targets.pytorch import native

DOCS = Path(__file__).parents[2] / "docs" / "transforms.md"

UNSUPPORTED = {
    ("positive", "vmap"): "elements give outputs of different sizes, which make no tensor; a CallError says so",
    ("positive", "vmap of grad"): "elements give outputs of different sizes, which make no tensor; a CallError says so",
}


def reference(example: Example):
    defaults = {
        item.name: list(item.default) if isinstance(item.default, tuple) else item.default
        for item in example.op.definition.attributes
        if not item.is_required
    }
    return functools.partial(example.op.reference, **{**defaults, **example.attributes})


def operator(example: Example):
    return functools.partial(example.op, **example.attributes)


def leaves(inputs) -> list[Tensor]:
    return [t for item in inputs for t in (item if isinstance(item, list) else [item]) if isinstance(t, Tensor)]


def rebuild(inputs, given):
    rest = iter(given)
    return [
        [next(rest) for _ in item] if isinstance(item, list) else next(rest) if isinstance(item, Tensor) else item
        for item in inputs
    ]


def floating(result) -> tuple[Tensor, ...]:
    return tuple(t for t in (result if isinstance(result, tuple) else (result,)) if t.dtype.is_floating_point)


class Case:
    """One operator as a function of its floating tensors only, and the reference likewise."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.inputs = example.inputs()
        self.all = leaves(self.inputs)
        self.places = [i for i, t in enumerate(self.all) if t.dtype.is_floating_point]

    @property
    def floats(self) -> list[Tensor]:
        return [self.all[i].clone(memory_format=torch.preserve_format) for i in self.places]

    @property
    def leaves(self) -> list[Tensor]:
        return [t.requires_grad_() for t in self.floats]

    def _function(self, call):
        def function(*given: Tensor) -> tuple[Tensor, ...]:
            tensors = dict(zip(self.places, given, strict=True))
            return floating(call(*rebuild(self.inputs, [tensors.get(i, t) for i, t in enumerate(self.all)])))

        return function

    @property
    def mine(self):
        return self._function(operator(self.example))

    @property
    def theirs(self):
        return self._function(reference(self.example))


def loss(function):
    return lambda *given: sum((t**3 + t).sum() for t in function(*given))


def check_values(case: Case) -> None:
    op, ref = operator(case.example)(*case.inputs), reference(case.example)(*case.inputs)
    mine, theirs = (op, ref) if isinstance(op, tuple) else ((op,), (ref,))
    torch.testing.assert_close(tuple(mine), tuple(theirs))
    for out in mine:
        assert out.untyped_storage().data_ptr() not in {t.untyped_storage().data_ptr() for t in case.all}


def check_first_gradient(case: Case) -> None:
    assert torch.autograd.gradcheck(case.mine, case.leaves)
    close(gradient(case.mine, case.leaves), gradient(case.theirs, case.leaves))


def check_second_gradient(case: Case) -> None:
    assert torch.autograd.gradgradcheck(case.mine, case.leaves)


def check_third_gradient(case: Case) -> None:
    def third(function):
        given = case.leaves
        order = loss(function)(*given)
        for _ in range(3):
            order = sum(g.pow(2).sum() for g in torch.autograd.grad(order, given, create_graph=True))
        return order

    close(third(case.mine), third(case.theirs))


def gradient(function, given):
    return torch.autograd.grad(loss(function)(*given), given)


def close(mine, theirs) -> None:
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


def check_forward_mode(case: Case) -> None:
    given = case.floats
    tangents = tuple(torch.cos(t) for t in given)
    mine, theirs = (torch.func.jvp(f, tuple(given), tangents) for f in (case.mine, case.theirs))
    close(mine, theirs)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(t, d) for t, d in zip(given, tangents, strict=True)]
        close([forward_ad.unpack_dual(t).tangent for t in case.mine(*duals)], [*theirs[1]])


def check_jacobians(case: Case) -> None:
    first = case.floats[0]

    def only_first(function):
        return lambda x: loss(function)(x, *case.floats[1:])

    for transform in (torch.func.jacfwd, torch.func.jacrev, torch.func.hessian):
        close(transform(only_first(case.mine))(first), transform(only_first(case.theirs))(first))


def check_grad(case: Case) -> None:
    given = tuple(case.floats)
    numbers = tuple(range(len(given)))
    mine, theirs = (torch.func.grad(loss(f), numbers) for f in (case.mine, case.theirs))
    close(mine(*given), theirs(*given))
    twice = [torch.func.grad(lambda *a, g=g: sum(t.pow(2).sum() for t in g(*a)), numbers) for g in (mine, theirs)]
    close(twice[0](*given), twice[1](*given))


def check_vmap(case: Case) -> None:
    given = case.floats
    many = [torch.stack([t, 2 * t, -t], dim=-1) for t in given]
    close(torch.func.vmap(case.mine, in_dims=-1)(*many), torch.func.vmap(case.theirs, in_dims=-1)(*many))
    for place in range(len(given)):
        in_dims = tuple(-1 if i == place else None for i in range(len(given)))
        mixed = [many[i] if i == place else given[i] for i in range(len(given))]
        close(torch.func.vmap(case.mine, in_dims)(*mixed), torch.func.vmap(case.theirs, in_dims)(*mixed))
    nested = [torch.stack([t, t + 1]) for t in many]
    mine, theirs = (torch.func.vmap(torch.func.vmap(f, in_dims=-1)) for f in (case.mine, case.theirs))
    close(mine(*nested), theirs(*nested))


def check_vmap_of_grad(case: Case) -> None:
    many = [torch.stack([t, 2 * t]) for t in case.floats]
    numbers = tuple(range(len(many)))
    mine, theirs = (torch.func.vmap(torch.func.grad(loss(f), numbers)) for f in (case.mine, case.theirs))
    close(mine(*many), theirs(*many))


class Module(torch.nn.Module):
    """The operator as a module whose parameter is its first floating input."""

    def __init__(self, case: Case, function) -> None:
        super().__init__()
        self.parameter = torch.nn.Parameter(case.floats[0])
        self.rest = case.floats[1:]
        self.function = function

    def forward(self, scale: Tensor) -> tuple[Tensor, ...]:
        return tuple(t * scale for t in self.function(self.parameter, *self.rest))


def check_functional_call_and_checkpoint(case: Case) -> None:
    scale = torch.tensor(0.5, dtype=torch.float64)
    results = []
    for function in (case.mine, case.theirs):
        module = Module(case, function)
        replaced = {"parameter": 2 * case.floats[0]}
        results.append(torch.func.functional_call(module, replaced, (scale,)))
        out = checkpoint(module, scale, use_reentrant=False)
        results[-1] += torch.autograd.grad(sum(t.sum() for t in out), [module.parameter])
    close(*results)


def check_compiled(case: Case) -> None:
    for dynamic in (False, True):
        torch._dynamo.reset()
        step = torch.compile(loss(case.mine), fullgraph=True, dynamic=dynamic, backend="aot_eager")
        given = case.leaves
        close(torch.autograd.grad(step(*given), given), gradient(case.theirs, given))


def check_export(case: Case) -> None:
    class Model(torch.nn.Module):
        def forward(self, *given):
            return case.mine(*given)

    program = torch.export.export(Model(), tuple(case.floats))
    target = f"gallery.{case.example.name}.default"
    for exported in (program, program.run_decompositions()):
        assert target in [str(node.target) for node in exported.graph.nodes]
        close(exported.module()(*case.floats), case.theirs(*case.floats))


def check_opcheck(case: Case) -> None:
    given = rebuild(case.inputs, [t.requires_grad_() if t.dtype.is_floating_point else t for t in case.all])
    torch.library.opcheck(
        case.example.op.torch_op, tuple(given), {**case.example.op._unsaid, **case.example.attributes}
    )


def check_autocast(case: Case) -> None:
    lower = [t.to(torch.bfloat16 if i % 2 else torch.float32) for i, t in enumerate(case.floats)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mine = case.mine(*lower)
    widest = torch.float32 if lower else torch.bfloat16
    theirs = case.theirs(*(t.to(widest) for t in lower))
    torch.testing.assert_close(mine, theirs)


COLUMNS = {
    "values, no aliasing": check_values,
    "first gradient": check_first_gradient,
    "second gradient": check_second_gradient,
    "third gradient": check_third_gradient,
    "forward mode": check_forward_mode,
    "hessian, jacfwd, jacrev": check_jacobians,
    "func.grad, twice": check_grad,
    "vmap": check_vmap,
    "vmap of grad": check_vmap_of_grad,
    "functional_call, checkpoint": check_functional_call_and_checkpoint,
    "compile": check_compiled,
    "export": check_export,
    "opcheck": check_opcheck,
    "autocast": check_autocast,
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.name}-{example.shape}")
def test_transform(example, column):
    case = Case(example)
    if (example.name, column) in UNSUPPORTED:
        with pytest.raises((CallError, RuntimeError)):
            COLUMNS[column](case)
    else:
        COLUMNS[column](case)


def table() -> str:
    """The table of docs/transforms.md."""
    notes: list[str] = []

    def cell(example: Example, column: str) -> str:
        reason = UNSUPPORTED.get((example.name, column))
        if reason is None:
            return "yes"
        if reason not in notes:
            notes.append(reason)
        return f"no ({notes.index(reason) + 1})"

    head = ["operator", "its inputs and outputs", "its gradient", *COLUMNS]
    rows = [[e.name, e.shape, e.gradient, *(cell(e, c) for c in COLUMNS)] for e in EXAMPLES]
    lines = [head, ["---"] * len(head), *rows]
    listed = [f"{number}. {note[0].upper()}{note[1:]}." for number, note in enumerate(notes, 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n" + "\n".join(listed) + "\n"


def test_the_table_in_the_docs_is_this_one():
    assert table() in DOCS.read_text(encoding="utf-8")


def counts() -> list[int]:
    return gradient_counts(torch.zeros(())).tolist()


def test_only_the_gradients_that_are_asked_for_are_computed():
    inputs = [t.requires_grad_() for t in EXAMPLES[3].inputs()]
    assert EXAMPLES[3].op is linear
    for wanted in ([0], [1], [2], [0, 2], [0, 1, 2]):
        before = counts()
        torch.autograd.grad(linear(*inputs).sum(), [inputs[i] for i in wanted])
        assert [now - then for now, then in zip(counts(), before, strict=True)] == [int(i in wanted) for i in range(3)]
    inputs[1] = inputs[1].detach()
    before = counts()
    linear(*inputs).sum().backward()
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 0, 1]


def test_gradients_with_stride_zero_and_as_views():
    x, w, b = (t.requires_grad_() for t in EXAMPLES[3].inputs())
    for reduce in (
        lambda y: y.sum(),
        lambda y: y.T.contiguous().T[::2].sum(),
        lambda y: (y[:, :1].expand(-1, 3) * 2).sum(),
        lambda y: y.t().reshape(-1)[::3].sum(),
    ):
        mine = torch.autograd.grad(reduce(linear(x, w, b, alpha=2.0, beta=0.5)), (x, w, b))
        theirs = torch.autograd.grad(reduce(linear.reference(x, w, b, alpha=2.0, beta=0.5)), (x, w, b))
        close(mine, theirs)


def test_pytorchs_own_errors_are_kept():
    x, w = (t.requires_grad_() for t in EXAMPLES[3].inputs()[:2])
    y = linear(x, w).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    z = linear(x * 1.0, w)
    saved = x.detach().clone().requires_grad_() * 1.0
    z = linear(saved, w)
    saved.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_a_kernel_that_fails_says_so_with_the_operator():
    x = EXAMPLES[7].inputs()[0]
    assert EXAMPLES[7].op is take
    with pytest.raises(CallError) as caught:
        take(x, torch.tensor([4]))
    assert str(caught.value) == "gallery::take: index 4 is outside [0, 4)"


def test_every_kernel_of_the_gallery_runs_natively():
    for example in EXAMPLES:
        if example.op.has_kernels:
            example.op(*example.inputs(), **example.attributes)
            assert example.op.definition.name in native.attached


def test_choices_are_checked_by_the_library_too():
    x = torch.randn(3)
    for call in (every_attribute, torch.ops.gallery.every_attribute):
        with pytest.raises(CallError) as caught:
            call(x, scale=1.0, mode="sun", names=["a"])
        assert str(caught.value) == (
            "gallery::every_attribute: attribute `mode` is 'sun', not one of 'sum', 'product'. Pass one of these."
        )


class Calls(TorchDispatchMode):
    """Notes which operators of the gallery are called, and on which shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[int, ...]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "gallery":
            self.seen.append((func.__name__, tuple(args[0].shape)))
        return func(*args, **(kwargs or {}))


def test_vmap_over_a_leading_group_is_one_call_of_the_kernel():
    x = torch.randn(7, 2, 3, dtype=torch.float64)
    with Calls() as calls:
        y = torch.func.vmap(soft, in_dims=1)(x)
    assert calls.seen == [("soft.default", (2, 7, 3))]
    torch.testing.assert_close(y, torch.softmax(x, -1).movedim(1, 0))
