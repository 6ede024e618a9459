"""What is computed of a call: its values, its gradients, forward mode, vmap. Each works on any callable.

A transform takes the callable and a case, and gives tensors with names. It is applied to a column and to the reference
alike, so that both are asked the same: what it needs besides (incoming gradients, directions) comes from the case.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oneop.check.cases import Case, rebuild
from oneop.check.layouts import LAYOUTS
from oneop.check.subject import Call, Named, Subject

Transform = Callable[[Subject, Call, Case], Named]


class NothingToDifferentiateError(Exception):
    """The case has no floating input, or gives no floating output."""


@dataclass(frozen=True)
class Choice:
    """Whose gradients are asked for, and how the incoming ones lie in memory; drawn from the case's seed."""

    wanted: tuple[int, ...]
    seed: int


def values(subject: Subject, call: Call, case: Case) -> Named:
    """What the call returns."""
    return subject.named(call(case.inputs, case.attributes), case.inputs, case.attributes)


def gradient(subject: Subject, call: Call, case: Case) -> Named:
    """The gradient of each floating input that is asked for, for incoming gradients of several layouts."""
    leaves, outputs, cotangents = _differentiable(subject, call, case, create_graph=False)
    return _named(case, leaves, _grad(outputs, leaves, cotangents))


def second_gradient(subject: Subject, call: Call, case: Case) -> Named:
    """The gradients of a weighted sum of the first gradients: by the inputs, and by the incoming gradients."""
    leaves, outputs, cotangents = _differentiable(subject, call, case, create_graph=True)
    first = _grad(outputs, leaves, cotangents, create_graph=True)
    weights = [_incoming(case, grad, _seed(case) + 7 + index) for index, grad in enumerate(first)]
    kept = [(grad, weight) for grad, weight in zip(first, weights, strict=True) if grad.requires_grad]
    onto = [*leaves, *cotangents]
    second = _grad([grad for grad, _ in kept], onto, [weight for _, weight in kept])
    named = _named(case, leaves, second[: len(leaves)])
    return named + [(f"incoming gradient {n}", grad) for n, grad in enumerate(second[len(leaves) :], 1)]


def forward_mode(subject: Subject, call: Call, case: Case) -> Named:
    """The values and the tangents of the floating outputs, for one direction."""
    places = _floating_places(case)
    given = tuple(case.tensors[place] for place in places)
    tangents = tuple(incoming(tensor, _seed(case) + index) for index, tensor in enumerate(given))

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor for _, tensor in floating(subject, call, case, places, tensors))

    names = [name for name, tensor in values(subject, call, case) if tensor.dtype.is_floating_point]
    if not names or not given:
        raise NothingToDifferentiateError
    outputs, results = torch.func.jvp(function, given, tangents)  # type: ignore[misc]
    return [
        *zip(names, outputs, strict=True),
        *((f"tangent of {name}", t) for name, t in zip(names, results, strict=True)),
    ]


def mapped(subject: Subject, call: Call, case: Case) -> Named:
    """What torch.func.vmap over three elements gives. Some of the tensors are mapped, at some dimension."""
    elements, in_dims = batch(subject, case)
    stacked = [
        tensors[0] if dim is None else torch.stack(tensors, dim) for tensors, dim in zip(elements, in_dims, strict=True)
    ]

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        inputs = rebuild(case.inputs, tensors)
        return tuple(t for _, t in subject.named(call(inputs, case.attributes), inputs, case.attributes))

    names = [name for name, _ in values(subject, call, case)]
    results = torch.func.vmap(function, in_dims=tuple(in_dims))(*stacked)
    return list(zip(names, results, strict=True))


def looped(subject: Subject, call: Call, case: Case) -> Named:
    """What ``mapped`` has to give: one call an element, stacked."""
    elements, _ = batch(subject, case)
    rows = [values(subject, call, case.with_inputs([tensors[index] for tensors in elements])) for index in range(3)]
    return [(name, torch.stack([row[place][1] for row in rows])) for place, (name, _) in enumerate(rows[0])]


def batch(subject: Subject, case: Case) -> tuple[list[list[Tensor]], list[int | None]]:
    """Three tensors in the place of each, and the dimension along which they are stacked: None where all are one.

    Values that a constraint binds, and integers, are the same in all three.
    """
    seed = _seed(case)
    names = [label.partition("[")[0] for label in case.labels]
    elements: list[list[Tensor]] = []
    in_dims: list[int | None] = []
    for index, (name, tensor) in enumerate(zip(names, case.tensors, strict=True)):
        free = tensor.dtype.is_floating_point and name not in subject.constraints.found
        elements.append([tensor, 2 * tensor, -tensor] if free else [tensor] * 3)
        in_dims.append(None if (seed >> index) % 3 == 2 else (seed + index) % (tensor.ndim + 1))
    if all(dim is None for dim in in_dims):
        in_dims[0] = 0
    for index, dim in enumerate(in_dims):
        if dim is None:
            elements[index] = [elements[index][0]] * 3
    return elements, in_dims


def floating(subject: Subject, call: Call, case: Case, places: Sequence[int], tensors: Sequence[Tensor]) -> Named:
    """The floating outputs of the call, with these tensors in those places."""
    given = list(case.tensors)
    for place, tensor in zip(places, tensors, strict=True):
        given[place] = tensor
    inputs = rebuild(case.inputs, given)
    named = subject.named(call(inputs, case.attributes), inputs, case.attributes)
    return [(name, tensor) for name, tensor in named if tensor.dtype.is_floating_point]


def incoming(like: Tensor, seed: int) -> Tensor:
    """A gradient or direction for a tensor. One seed in two gives stride 0, a view, or another order in memory."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-8, 9, tuple(like.shape), generator=generator).double() / 4
    drawn = torch.where(drawn == 0, torch.full_like(drawn, 0.5), drawn).to(like.dtype)
    fitting = [layout for layout in LAYOUTS.values() if layout.fits(tuple(like.shape))]
    places = [*fitting, *fitting[:1] * len(fitting)]
    return places[seed % len(places)].apply(drawn)


def _incoming(case: Case, like: Tensor, seed: int) -> Tensor:
    laid_out = incoming(like, seed)
    return laid_out.clone(memory_format=torch.contiguous_format) if case.plain_gradients else laid_out


def choice(case: Case, count: int) -> Choice:
    """All inputs for two seeds of three; for the third one or some of them."""
    seed = _seed(case)
    if seed % 3:
        return Choice(tuple(range(count)), seed)
    alone = ((seed // 6) % count,)
    some = tuple(index for index in range(count) if (seed // 6) >> index & 1)
    return Choice((some if seed % 2 else alone) or alone, seed)


def _differentiable(
    subject: Subject, call: Call, case: Case, *, create_graph: bool
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Leaves, outputs, and what comes in for each of those. An operator's outputs all ask for a gradient where one of
    its inputs does; those of its reference only where they depend on it.
    """
    places = _floating_places(case)
    if not places:
        raise NothingToDifferentiateError
    chosen = choice(case, len(places))
    wanted = [places[index] for index in chosen.wanted]
    leaves = [case.tensors[place].detach().requires_grad_() for place in wanted]
    outputs = [tensor for _, tensor in floating(subject, call, case, wanted, leaves)]
    if not outputs:
        raise NothingToDifferentiateError
    cotangents = [_incoming(case, tensor, chosen.seed + index) for index, tensor in enumerate(outputs)]
    # One output of several is left out at times: then nobody has its gradient.
    dropped = (chosen.seed // 5) % (3 * len(outputs)) if len(outputs) > 1 else len(outputs)
    kept = [
        (output, cotangent)
        for index, (output, cotangent) in enumerate(zip(outputs, cotangents, strict=True))
        if index != dropped
    ]
    if create_graph:
        kept = [(output, cotangent.detach().requires_grad_()) for output, cotangent in kept]
    return leaves, [output for output, _ in kept], [cotangent for _, cotangent in kept]


def _grad(
    outputs: Sequence[Tensor], onto: Sequence[Tensor], cotangents: Sequence[Tensor], *, create_graph: bool = False
) -> list[Tensor]:
    """Zeros where nothing depends on a tensor."""
    asked = [pair for pair in zip(outputs, cotangents, strict=True) if pair[0].requires_grad]
    if not asked or not onto:
        return [torch.zeros_like(tensor) for tensor in onto]
    found = torch.autograd.grad(
        [output for output, _ in asked],
        list(onto),
        [cotangent for _, cotangent in asked],
        allow_unused=True,
        create_graph=create_graph,
    )
    return [torch.zeros_like(tensor) if grad is None else grad for grad, tensor in zip(found, onto, strict=True)]


def _floating_places(case: Case) -> list[int]:
    return [place for place, tensor in enumerate(case.tensors) if tensor.dtype.is_floating_point]


def _named(case: Case, leaves: Sequence[Tensor], gradients: Sequence[Tensor]) -> Named:
    places = _floating_places(case)
    wanted = choice(case, len(places)).wanted
    labels = [case.labels[places[index]] for index in wanted]
    return [(f"gradient of {label}", grad.detach()) for label, grad in zip(labels, gradients, strict=True)]


def _seed(case: Case) -> int:
    return case.seed
