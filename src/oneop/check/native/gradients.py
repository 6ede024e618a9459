"""Calls of a gradient operator, made of calls of its operator."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oneop.check.cases import Case, Structure, flat
from oneop.check.transforms import incoming
from oneop.definition.record import NEEDS

if TYPE_CHECKING:
    from oneop.operator import Operator


def gradient_cases(operator: "Operator", cases: Sequence[Case]) -> list[Case]:
    """One call of the gradient operator for each call of the operator whose reference works; none where there are some
    among the cases, or the gradient has no kernels.

    Each asks for all gradients; the first ones are asked for one by one too.
    """
    gradient = operator.gradient_operator
    if gradient is None or not gradient.has_kernels:
        return []
    if any(case.definition.name == gradient.definition.name for case in cases):
        return []
    found: list[Case] = []
    for number, case in enumerate(cases):
        if case.definition.name != operator.definition.name:
            continue
        made = _gradient_case(operator, case, number)
        if made is None:
            continue
        found.append(made)
        if number < 2:
            bits = range(len(gradient.definition.differentiates))
            found.extend(_asking(made, 1 << bit) for bit in bits if len(bits) > 1)
    return found


def _asking(case: Case, needs: int) -> Case:
    return Case(case.definition, case.structure, case.inputs, {**case.attributes, NEEDS: needs}, case.sizes)


def _gradient_case(operator: "Operator", case: Case, seed: int) -> Case | None:
    gradient = operator.gradient_operator
    assert gradient is not None
    outputs = outputs_of(operator, case)
    if outputs is None:
        return None
    definition = gradient.definition
    named = dict(zip((item.name for item in case.definition.inputs), case.inputs, strict=True))
    results = dict(zip((item.name for item in case.definition.outputs), outputs, strict=True))
    floating = [tensor for tensor in outputs if tensor.dtype.is_floating_point]
    gradients = iter([incoming(tensor, seed + index) for index, tensor in enumerate(floating)])
    inputs: list[Any] = [
        named[item.name] if item.name in named else results[item.name] if item.name in results else next(gradients)
        for item in definition.inputs
    ]
    known = dict(zip((element.name for element in case.definition.elements), case.structure.dtypes, strict=True))
    structure = Structure(
        tuple(known.get(element.name, element.dtypes[0]) for element in definition.elements),
        case.structure.present,
        case.structure.counts,
        case.structure.ranks,
        case.structure.attributes,
    )
    return Case(definition, structure, tuple(inputs), {**case.attributes, NEEDS: -1}, case.sizes)


def outputs_of(operator: "Operator", case: Case) -> list[Tensor] | None:
    """What the reference gives in the call's dtypes; None where it raises."""
    attributes = {name: list(value) if isinstance(value, tuple) else value for name, value in case.attributes.items()}
    try:
        with torch.no_grad():
            result = operator.call_reference(*case.inputs, **attributes)
    except Exception:  # the reference is a person's code, and may refuse what it likes
        return None
    dtypes = dict(zip((element.name for element in case.definition.elements), case.structure.dtypes, strict=True))
    return [
        tensor.to(getattr(torch, dtypes[output.element.name].name))
        for output, tensor in zip(
            case.definition.outputs, flat([result] if isinstance(result, Tensor) else [*result]), strict=True
        )
    ]
