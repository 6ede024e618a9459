"""DTensor: operators on two processes give what they give on one, forward and backward, however inputs are split."""

import itertools
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import operators
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import oneop

WHOLE, PARTIAL = Replicate(), Partial("sum")


def mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (2,))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def train(operator: Callable[..., Any], tensors: Sequence[Any], **attributes: Any) -> list[Any]:
    """Outputs and gradients of a loss that weighs every number differently."""
    inputs = [
        value.detach().requires_grad_() if isinstance(value, Tensor) and value.is_floating_point() else value
        for value in tensors
    ]
    result = operator(*inputs, **attributes)
    outputs = list(result) if isinstance(result, tuple) else [result]
    loss = sum((value.sin() * value).sum() for value in outputs)
    loss.backward()
    return [*outputs, *(value.grad for value in inputs if isinstance(value, Tensor) and value.requires_grad)]


def check(
    operator: Callable[..., Any], tensors: Sequence[Any], placements: Sequence[Any], **attributes: Any
) -> list[Any]:
    """Compares with one process; returns the placements of outputs and gradients."""
    wanted = train(operator, tensors, **attributes)
    split = [
        None if value is None else distribute_tensor(value, mesh(), [placement])
        for value, placement in zip(tensors, placements, strict=True)
    ]
    found = train(operator, split, **attributes)
    for one, two in zip(wanted, found, strict=True):
        # float64: sums of some tens of numbers in another order
        torch.testing.assert_close(two.full_tensor(), one, rtol=1e-12, atol=1e-12)
    return [value.placements[0] for value in found]


LINEAR = (random(4, 6, seed=1), random(8, 6, seed=2), random(8, seed=3))


def case_scaled_linear_split_along_n(rank: int) -> None:
    """Data parallel: the gradients of weight and bias are sums over the processes."""
    found = check(operators.scaled_linear, LINEAR, [Shard(0), WHOLE, WHOLE], alpha=0.5, beta=2.0)
    assert found == [Shard(0), Shard(0), PARTIAL, PARTIAL], found


def case_scaled_linear_split_along_m(rank: int) -> None:
    """Column parallel."""
    found = check(operators.scaled_linear, LINEAR, [WHOLE, Shard(0), Shard(0)], alpha=0.5, beta=2.0)
    assert found == [Shard(1), PARTIAL, Shard(0), Shard(0)], found


def case_scaled_linear_split_along_k(rank: int) -> None:
    """Row parallel: the outputs add up, with bias in them once."""
    found = check(operators.scaled_linear, LINEAR, [Shard(1), Shard(1), WHOLE], alpha=0.5, beta=2.0)
    assert found == [PARTIAL, Shard(1), Shard(1), WHOLE], found
    found = check(operators.scaled_linear, (*LINEAR[:2], None), [Shard(1), Shard(1), None], alpha=0.5)
    assert found == [PARTIAL, Shard(1), Shard(1)], found


def case_scaled_linear_split_in_every_way(rank: int) -> None:
    """Also where inputs do not fit each other and DTensor moves them first, and where sizes cannot be halved."""
    for tensors in (LINEAR, (random(3, 5), random(7, 5, seed=4), random(7, seed=5)), tuple(v[:1] for v in LINEAR)):
        for placements in itertools.product(
            [WHOLE, Shard(0), Shard(1)], [WHOLE, Shard(0), Shard(1)], [WHOLE, Shard(0)]
        ):
            check(operators.scaled_linear, tensors, placements, alpha=0.5, beta=2.0)


def case_split_calls_do_not_communicate(rank: int) -> None:
    x, weight, bias = LINEAR
    split = [distribute_tensor(v, mesh(), [p]) for v, p in ((x, Shard(0)), (weight, WHOLE), (bias, WHOLE))]
    with CommDebugMode() as seen:
        out = operators.scaled_linear(*split)
    assert seen.get_total_counts() == 0, seen.get_comm_counts()
    assert out.to_local().shape == (2, 8)


def case_two_dimensions_of_a_mesh(rank: int) -> None:
    """Placements are found for each dimension of a mesh; here one has a single process."""
    two = init_device_mesh("cpu", (2, 1))
    x, weight, bias = LINEAR
    split = [
        distribute_tensor(x, two, [Shard(0), WHOLE]),
        distribute_tensor(weight, two, [WHOLE, Shard(0)]),
        distribute_tensor(bias, two, [WHOLE, Shard(0)]),
    ]
    found = train(operators.scaled_linear, split)
    for one, other in zip(train(operators.scaled_linear, LINEAR), found, strict=True):
        torch.testing.assert_close(other.full_tensor(), one, rtol=1e-12, atol=1e-12)


def case_partial_inputs(rank: int) -> None:
    """A sum that is not done yet is done before a call that is not linear in it."""
    x = random(4, 6)
    unfinished = DTensor.from_local(x * (0.25 if rank == 0 else 0.75), mesh(), [PARTIAL])
    torch.testing.assert_close(operators.softmax(unfinished).full_tensor(), x.softmax(1), rtol=1e-12, atol=1e-12)
    out = operators.scaled_linear(unfinished, distribute_tensor(LINEAR[1], mesh(), [WHOLE]))
    torch.testing.assert_close(out.full_tensor(), x @ LINEAR[1].T, rtol=1e-12, atol=1e-12)


def case_leading_group(rank: int) -> None:
    x = random(4, 2, 6)
    for dimension in (0, 1):
        assert check(operators.gate, [x], [Shard(dimension)], slope=1.5)[0] == Shard(dimension)
    # Along n nothing is said: DTensor gathers the input. The derived gradient is that of torch's own operators.
    assert check(operators.gate, [x], [Shard(2)], slope=1.5)[0] == WHOLE


def case_written_gradient_that_names_an_output(rank: int) -> None:
    x = random(4, 6)
    assert check(operators.softmax, [x], [Shard(0)]) == [Shard(0), Shard(0)]
    assert check(operators.softmax, [x], [Shard(1)])[0] == WHOLE


def case_factor_of_a_sum(rank: int) -> None:
    tensors = (random(4, 6), random())
    assert check(operators.weighted, tensors, [Shard(1), WHOLE]) == [PARTIAL, Shard(1), PARTIAL]
    assert check(operators.weighted, tensors, [Shard(0), WHOLE]) == [Shard(0), Shard(0), PARTIAL]


def case_gradient_of_a_sum_that_names_the_sum(rank: int) -> None:
    tensors = (random(4, 6), random())
    assert check(operators.factored, tensors, [Shard(1), WHOLE]) == [PARTIAL, WHOLE, WHOLE]


def case_a_reference_that_dtensor_cannot_run(rank: int) -> None:
    """Its derived gradient is computed on gathered tensors."""
    for placement in (Shard(0), Shard(1), WHOLE):
        check(operators.positions, [random(4, 6)], [placement])
    split = distribute_tensor(random(4, 6), mesh(), [Shard(0)]).requires_grad_()
    raises(lambda: operators.scaled_linear(split, split.to_local()), "mixed torch.Tensor and DTensor")


def case_several_outputs(rank: int) -> None:
    index = torch.tensor([1, 0, 3, 2])
    tensors = (random(4, 6), index, random(6, seed=1))
    assert check(operators.parts, tensors, [Shard(0), Shard(0), WHOLE]) == [Shard(0)] * 3 + [PARTIAL]
    assert check(operators.parts, (*tensors[:2], None), [Shard(0), Shard(0), None]) == [Shard(0)] * 3
    check(operators.parts, tensors, [Shard(1), WHOLE, Shard(0)])


def case_without_words_nothing_is_split(rank: int) -> None:
    for placements in itertools.product([WHOLE, Shard(0), Shard(1)], [WHOLE, Shard(0)]):
        assert check(operators.silent, (random(4, 6), random(6, seed=1)), placements) == [WHOLE] * 3


def case_double_backward(rank: int) -> None:
    def gradient_of_gradient(x: Tensor, weight: Tensor) -> list[Tensor]:
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        (first,) = torch.autograd.grad(operators.scaled_linear(x, weight).square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), (x, weight)))

    wanted = gradient_of_gradient(*LINEAR[:2])
    for placements in ((Shard(0), WHOLE), (WHOLE, Shard(0)), (Shard(1), Shard(1))):
        split = [distribute_tensor(v, mesh(), [p]) for v, p in zip(LINEAR[:2], placements, strict=True)]
        for one, two in zip(wanted, gradient_of_gradient(*split), strict=True):
            torch.testing.assert_close(two.full_tensor(), one, rtol=1e-12, atol=1e-12)


def case_a_flag_that_changes_the_answer(rank: int) -> None:
    """A decision for one value of an attribute is not used for another."""
    x = distribute_tensor(random(6), mesh(), [Shard(0)])
    assert operators.switched(x, mode="each").placements == (Shard(0),)
    raises(lambda: operators.switched(x, mode="all"), r"`independent=\('n',\)` is wrong")


def case_training_steps(rank: int) -> None:
    """An optimizer on DTensor parameters: losses as in one process, data parallel and tensor parallel."""

    def losses(x: Tensor, parameters: Sequence[Tensor]) -> list[float]:
        weights = [torch.nn.Parameter(value.detach().clone()) for value in parameters]
        optimizer = torch.optim.SGD(weights, lr=0.05, momentum=0.9)
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            hidden = operators.gate(operators.scaled_linear(x, weights[0], weights[1], alpha=0.5))
            loss = operators.scaled_linear(hidden, weights[2], weights[3]).square().mean()
            loss.backward()
            optimizer.step()
            found.append((loss.full_tensor() if isinstance(loss, DTensor) else loss).item())
        return found

    x, parameters = random(4, 6), [random(8, 6, seed=1), random(8, seed=2), random(2, 8, seed=3), random(2, seed=4)]
    wanted = losses(x, parameters)
    assert wanted[-1] < 0.9 * wanted[0]
    for own, theirs in (
        (Shard(0), (WHOLE, WHOLE, WHOLE, WHOLE)),
        (WHOLE, (Shard(0), Shard(0), Shard(1), WHOLE)),
        (Shard(1), (Shard(1), WHOLE, Shard(0), Shard(0))),
    ):
        split = [distribute_tensor(value, mesh(), [p]) for value, p in zip(parameters, theirs, strict=True)]
        found = losses(distribute_tensor(x, mesh(), [own]), split)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)


def case_wrong_words_are_refused(rank: int) -> None:
    x = distribute_tensor(random(4, 6), mesh(), [Shard(1)])
    bias = distribute_tensor(random(4), mesh(), [WHOLE])
    raises(lambda: operators.mixed(x), r"distributed::mixed: the definition's `independent=\('k',\)` is wrong")
    raises(lambda: operators.rectified(x), r"distributed::rectified: .*Remove `k` from `summed`")
    raises(lambda: operators.biased(x, bias), r"distributed::biased: .*Remove `k` from `summed`")


def case_a_leading_group_that_mixes_is_not_split(rank: int) -> None:
    x = random(4, 6)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        out = operators.group_mixed(distribute_tensor(x, mesh(), [Shard(0)]))
    assert any("`*batch` could not be checked" in str(item.message) for item in seen), [str(i.message) for i in seen]
    assert out.placements == (WHOLE,)
    torch.testing.assert_close(out.full_tensor(), x - x.mean())


def case_what_random_numbers_cannot_check(rank: int) -> None:
    """It is not split, and one is told what to do; then it is."""
    x = random(4, 3, 3)
    x = x @ x.mT + torch.eye(3)
    split = distribute_tensor(x, mesh(), [Shard(0)])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        out = operators.positive(split)
    assert any("oneop.verify_sharding(positive, *inputs)" in str(item.message) for item in seen)
    assert out.placements == (WHOLE,)
    assert oneop.verify_sharding(operators.positive, x) == ["n"]
    out = operators.positive(split)
    assert out.placements == (Shard(0),)
    torch.testing.assert_close(out.full_tensor(), torch.linalg.cholesky(x))


def case_what_is_decided_does_not_depend_on_earlier_calls(rank: int) -> None:
    """Processes may have made different calls before one that they make together."""

    def placement(size: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return operators.at_least_nine(distribute_tensor(random(4, size), mesh(), [Shard(0)])).placements[0]

    assert placement(9) == Shard(0)  # too few numbers are left of it when it is made smaller; it is tried as it is
    assert placement(1 << 19) == WHOLE  # too large to try
    assert placement(9) == Shard(0)


def case_a_definition_that_changed(rank: int) -> None:
    def define(**words: Any) -> Any:
        @oneop.op("distributed::changed", **words)
        def changed(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
            return x.sin()

        return changed

    x = distribute_tensor(random(4), mesh(), [Shard(0)])
    assert define(independent=["n"])(x).placements == (Shard(0),)
    assert define()(x).placements == (WHOLE,)
    assert define(independent=["n"])(x).placements == (Shard(0),)


def case_lists_of_tensors(rank: int) -> None:
    xs = [random(4, 6, seed=seed) for seed in range(3)]
    split = [distribute_tensor(x, mesh(), [Shard(0)]) for x in xs]
    out = operators.total(split, scale=2.0)
    assert out.placements == (Shard(0),)
    torch.testing.assert_close(out.full_tensor(), 2 * sum(xs))
    for operator in (operators.total, operators.derived_total):
        needing = [x.detach().requires_grad_() for x in split]
        operator(needing).square().sum().backward()
        for x in needing:
            torch.testing.assert_close(x.grad.full_tensor(), 2 * sum(xs))
    raises(lambda: operators.total([needing[0].detach(), xs[1]]), "distributed.total.*mixed torch.Tensor and DTensor")


def case_an_output_of_unknown_size(rank: int) -> None:
    x = random(6)
    split = distribute_tensor(x, mesh(), [Shard(0)])
    torch.testing.assert_close(operators.positives(split).full_tensor(), x[x > 0])
    wanted = train(operators.written_positives, [x])
    for one, two in zip(wanted, train(operators.written_positives, [split]), strict=True):
        torch.testing.assert_close(two.full_tensor(), one)
    raises(lambda: operators.written_positives(split, x), "distributed::written_positives.*only some are DTensors")


def case_plain_tensors_among_them(rank: int) -> None:
    """torch's own message, which names the operator."""
    x, weight, _ = LINEAR
    split = distribute_tensor(x, mesh(), [Shard(0)])
    raises(lambda: operators.scaled_linear(split, weight), r"distributed.scaled_linear.*mixed torch.Tensor and DTensor")


def case_compiled(rank: int) -> None:
    x, weight, bias = (distribute_tensor(v, mesh(), [p]) for v, p in zip(LINEAR, (Shard(0), WHOLE, WHOLE), strict=True))
    compiled = torch.compile(lambda *tensors: operators.scaled_linear(*tensors).sin(), backend="aot_eager")
    wanted = operators.scaled_linear(*LINEAR).sin()
    torch.testing.assert_close(compiled(x, weight, bias).full_tensor(), wanted, rtol=1e-12, atol=1e-12)


def raises(call: Callable[[], Any], pattern: str) -> None:
    try:
        call()
    except Exception as error:
        said = str(error)
    else:
        said = "nothing was raised"
    assert re.search(pattern, said, re.DOTALL), f"{said}\n\ndoes not match {pattern}"
