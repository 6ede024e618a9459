"""Finds out whether what a definition says about splitting is true: shares are computed and compared with the whole."""

import concurrent.futures
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oneop.definition.binding import shown
from oneop.definition.dims import Binary, Call, Name, names
from oneop.definition.record import Definition
from oneop.errors import CallError
from oneop.targets.pytorch.sharding import Cut, How, Rule, cuts_of, forget, forward_of, leading_of, rule_of

if TYPE_CHECKING:
    from oneop.operator import Operator

SHARES = 2
MOST_NUMBERS = 1 << 20
"""A check at the sizes of a user's call may take so many numbers; beyond, it is not made."""

_verified: set[Any] = set()
"""What users verified: operator, dimension, and attributes but for floats."""

_outcomes: dict[Any, Exception | None] = {}
"""What came of checks with random numbers. Nothing else decides, so that all processes decide alike."""


class WrongWordError(CallError):
    """Shares of a call do not make up the whole."""


def verify_sharding(operator: "Operator", *inputs: Any, **attributes: Any) -> list[str]:
    """Computes a call whole and in shares, forward and with its written gradient, and compares.

    It does so for each dimension that the definition calls ``independent`` or ``summed``, and for each of ``*batch``,
    in this process; no process group is needed. Returns the dimensions that were checked: a dimension of size 1
    cannot be. Raises CallError where the definition is wrong. What is verified here is trusted when DTensors come: call
    it in every process or in none, or they disagree on how to split.
    """
    if operator.definition.is_gradient:
        raise CallError(
            f"{operator.definition.name}: a gradient is verified with its operator. Pass"
            f" `{forward_of(operator).definition.base}` and its inputs."
        )
    given, named = operator._arguments(inputs, attributes)
    shapes = [[tuple(tensor.shape) for tensor in _listed(value)] for value in given]
    leading = leading_of(operator.definition, shapes)
    checked = []
    with torch.no_grad():
        for cut in cuts_of(operator, leading):
            if _size(operator.definition, cut, shapes, leading) >= SHARES:
                _compare(operator, cut, leading, given, named)
                _verified.add(_key(operator, cut, named))
                checked.append(cut.label)
    forget()
    return checked


def is_trusted(operator: "Operator", cut: Cut, tensors: Sequence[Sequence[Any]], attributes: Mapping[str, Any]) -> bool:
    """Whether a call may be split so. Checked once, with small random inputs like those of the call.

    ``tensors`` has shape and dtype of each input's tensors; for a gradient operator, those of its own inputs.
    Raises CallError where words of the definition are wrong. Where the check cannot be made, the call is not split, and
    a warning says how to change that.
    """
    forward = forward_of(operator)
    if operator is not forward:
        tensors = [
            its
            for item, its in zip(operator.definition.inputs, tensors, strict=True)
            if item.name in forward.definition.parameters()
        ]
        attributes = {item.name: attributes[item.name] for item in forward.definition.attributes}
    shapes = [[tuple(spec.shape) for spec in its] for its in tensors]
    leading = leading_of(forward.definition, shapes)
    if _size(forward.definition, cut, shapes, leading) < SHARES or not _has_summands(forward.definition, cut, tensors):
        return False
    if _key(forward, cut, attributes) in _verified:
        return True
    dtypes = [[_dtype(spec) for spec in its] for its in tensors]
    outcome: Exception | None = None
    for sizes in (_small(forward.definition, shapes), shapes):
        outcome = _outcome(forward, cut, leading, sizes, dtypes, attributes)
        if outcome is None:
            return True
        if isinstance(outcome, WrongWordError):
            if cut.position is None:
                raise WrongWordError(str(outcome))
            break
    _warn(forward.definition, cut, str(outcome))
    return False


def _has_summands(definition: Definition, cut: Cut, tensors: Sequence[Sequence[Any]]) -> bool:
    return all(
        _dtype(spec).is_floating_point
        for item, its in zip(definition.inputs, tensors, strict=True)
        if item.name in cut.summands
        for spec in its
    )


def _dtype(spec: Any) -> torch.dtype:
    dtype: torch.dtype = spec.dtype if isinstance(spec, Tensor) else spec.tensor_meta.dtype
    return dtype


def _alone(check: Callable[[], Exception | None]) -> Exception | None:
    """Runs a check in a thread of its own, where no mode (tracing, autocast, inference) of the caller is on."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(check).result()


def _key(operator: "Operator", cut: Cut, attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    switches = [repr(value) for value in attributes.values() if not isinstance(value, float)]
    return operator, cut, tuple(switches)


def _outcome(
    operator: "Operator",
    cut: Cut,
    leading: int,
    shapes: list[list[tuple[int, ...]]],
    dtypes: list[list[torch.dtype]],
    attributes: Mapping[str, Any],
) -> Exception | None:
    """Why the shares of calls with random numbers do not make up the whole; None if they do."""
    key = (*_key(operator, cut, attributes), str(shapes), str(dtypes))
    if key not in _outcomes:
        _outcomes[key] = _alone(lambda: _check(operator, cut, leading, shapes, dtypes, attributes))
    return _outcomes[key]


def _check(
    operator: "Operator",
    cut: Cut,
    leading: int,
    shapes: list[list[tuple[int, ...]]],
    dtypes: list[list[torch.dtype]],
    attributes: Mapping[str, Any],
) -> Exception | None:
    if sum(torch.Size(shape).numel() for its in shapes for shape in its) > MOST_NUMBERS:
        return CallError("the inputs are too large to try")
    try:
        with torch.no_grad():
            for scale in (1.0, 30.0):  # a limit such as clamp's shows itself with large numbers only
                inputs = _random(operator.definition, shapes, dtypes, scale)
                _compare(operator, cut, leading, inputs, attributes)
    except Exception as error:  # whatever the operator says of random numbers
        return error.with_traceback(None)
    return None


def _warn(definition: Definition, cut: Cut, reason: str) -> None:
    (first, *_) = reason.splitlines() or ["it failed"]
    warnings.warn(
        f"{definition.name}: a DTensor that is split along `{cut.label}` is gathered in every process for this"
        f" operator, because `{cut.word}` could not be checked with random inputs ({first}). Call"
        f" oneop.verify_sharding({definition.base}, *inputs) in every process with inputs that fit.",
        stacklevel=2,
    )


def _small(definition: Definition, shapes: list[list[tuple[int, ...]]]) -> list[list[tuple[int, ...]]]:
    """The call's shapes, smaller where no expression of the definition might mind."""
    stated = [item.shape for item in definition.inputs] + [item.shape for item in definition.outputs]
    fixed = {name for shape in stated for dim in shape.dims if isinstance(dim, Binary | Call) for name in names(dim)}

    def shrunk(shape: tuple[int, ...], dims: tuple[Any, ...]) -> tuple[int, ...]:
        own = shape[len(shape) - len(dims) :]
        group = tuple(min(size, 4) for size in shape[: len(shape) - len(dims)])
        return group + tuple(
            min(size, 6) if isinstance(dim, Name) and dim.name not in fixed else size
            for dim, size in zip(dims, own, strict=True)
        )

    return [
        [shrunk(shape, item.shape.dims) for shape in its] for item, its in zip(definition.inputs, shapes, strict=True)
    ]


def _random(
    definition: Definition, shapes: list[list[tuple[int, ...]]], dtypes: list[list[torch.dtype]], scale: float
) -> list[Any]:
    """Inputs that are the same in every process, in float64 where the definition admits it."""
    generator = torch.Generator().manual_seed(0)

    def tensor(item: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if not dtype.is_floating_point:
            return torch.randint(0, 2, shape, generator=generator).to(dtype)
        exact = any(known.name == "float64" for known in item.element.dtypes)
        values = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        return values if exact else values.to(dtype)

    found: list[Any] = []
    for item, its, kinds in zip(definition.inputs, shapes, dtypes, strict=True):
        values = [tensor(item, shape, dtype) for shape, dtype in zip(its, kinds, strict=True)]
        found.append(values if item.arity == "variadic" else values[0] if values else None)
    return found


def _size(definition: Definition, cut: Cut, shapes: Sequence[Sequence[Sequence[int]]], leading: int) -> int:
    """The size of the dimension that is cut; 0 where only absent inputs have it."""
    for item, its in zip(definition.inputs, shapes, strict=True):
        along = cut.along(item.shape, leading)
        if along is not None and its:
            return its[0][along]
    return 0


# ---- comparing -------------------------------------------------------------------------------------------------------


def _compare(
    operator: "Operator", cut: Cut, leading: int, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> None:
    rule = rule_of(operator, cut, leading)
    assert rule is not None
    outputs = _compare_call(operator, rule, inputs, attributes)
    gradient = operator.gradient_operator
    if gradient is None:
        return
    rule = rule_of(gradient, cut, leading)
    if rule is None:
        return
    definition = gradient.definition
    generator = torch.Generator().manual_seed(1)
    known = dict(zip((item.name for item in operator.definition.inputs), inputs, strict=True))
    results = dict(zip((item.name for item in operator.definition.outputs), outputs, strict=True))
    floating = [value for value in outputs if value.dtype.is_floating_point]
    incoming = iter(torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value) for value in floating)
    given = [
        known[item.name] if item.name in known else results[item.name] if item.name in results else next(incoming)
        for item in definition.inputs
    ]
    _compare_call(gradient, rule, given, attributes)


def _compare_call(
    operator: "Operator", rule: Rule, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> tuple[Any, ...]:
    whole = _call(operator, inputs, attributes)
    split = [_shares(how, value) for how, value in zip(rule.inputs, inputs, strict=True)]
    parts = [_call(operator, [shares[rank] for shares in split], attributes) for rank in range(SHARES)]
    given = {item.name: value for item, value in zip(operator.definition.inputs, inputs, strict=True)}
    for index, (item, how) in enumerate(zip(operator.definition.outputs, rule.outputs, strict=True)):
        if item.mirrors is not None and given[item.mirrors] is None:
            continue
        columns = zip(_listed(whole[index]), *(_listed(part[index]) for part in parts), strict=True)
        for wanted, *shares in columns:
            for found in _joined(how, shares):
                _require_close(operator.definition, rule.cut, item.name, found, wanted)
    return whole


def _call(operator: "Operator", inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    result = operator.torch_op(*inputs, **attributes)
    return tuple(result) if isinstance(result, tuple) else (result,)


def _shares(how: How, value: Any) -> list[Any]:
    """What each process has of an input."""
    if value is None or how == "whole":
        return [value] * SHARES
    if isinstance(value, list | tuple):
        return [list(column) for column in zip(*(_shares(how, one) for one in value), strict=True)]
    if how == "summand":
        generator = torch.Generator().manual_seed(2)
        part = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
        return [part, value - part]
    return list(value.tensor_split(SHARES, how))


def _joined(how: How, shares: list[Tensor]) -> list[Tensor]:
    """The whole result that shares stand for; of those that should be whole already, each."""
    if how == "whole":
        return shares
    if how == "summand":
        return [torch.stack(shares).sum(0, dtype=shares[0].dtype)] if _same_shapes(shares) else shares
    return [torch.cat(shares, how)]


def _same_shapes(shares: list[Tensor]) -> bool:
    return len({share.shape for share in shares}) == 1


def _require_close(definition: Definition, cut: Cut, name: str, found: Tensor, wanted: Tensor) -> None:
    where = f"{definition.name}: the definition's `{cut.word}` is wrong. `{name}`, put together from halves along"
    remedy = (
        f"Give the dimensions of `*{cut.name}` names: elements of a leading group must not depend on each other."
        if cut.position is not None
        else f"Remove `{cut.name}` from `{cut.kind}`"
        + ("." if cut.kind == "independent" else ", or correct its inputs.")
    )
    if found.shape != wanted.shape:
        raise WrongWordError(
            f"{where} `{cut.label}`, has shape {shown(found.shape)}, not {shown(wanted.shape)}. {remedy}"
        )
    if wanted.numel() == 0:
        return
    if not wanted.dtype.is_floating_point:
        if not torch.equal(found, wanted):
            raise WrongWordError(f"{where} `{cut.label}`, differs from the whole. {remedy}")
        return
    # Rounding is a few eps of the numbers that were added; what is computed wrongly is off by the numbers themselves.
    a, b = found.double().nan_to_num(), wanted.double().nan_to_num()
    largest = max(a.abs().max().item(), b.abs().max().item())
    error = (a - b).abs().max().item()
    if error > largest * torch.finfo(wanted.dtype).eps ** 0.5 or not torch.equal(found.isnan(), wanted.isnan()):
        raise WrongWordError(
            f"{where} `{cut.label}`, is off by {error:.3g} where the largest value is {largest:.3g}. {remedy}"
        )


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
