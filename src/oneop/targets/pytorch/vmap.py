"""torch.func.vmap over an operator: as one more leading dimension, through the mapped reference, or in a loop."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._functorch.autograd_function import custom_function_call_vmap_helper
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

from oneop import registry
from oneop.errors import CallError, OneopError

if TYPE_CHECKING:
    from oneop.operator import Operator


def vmap_implementation(name: str) -> Callable[..., Any]:
    """What runs at torch's FuncTorchBatched key."""

    def batched(*args: Any, **kwargs: Any) -> Any:
        operator = registry.operators()[name]
        if operator.has_kernels and _adds_to_the_group(operator, args):
            return _map_at(_as_leading_dimension, operator, args, kwargs)
        if operator.definition.native_only:
            return _loop(operator, args, kwargs, None)
        try:
            return operator.torch_reference(*args, **kwargs)
        except OneopError:
            raise
        except RuntimeError as error:  # the reference does what torch.vmap cannot map
            return _loop(operator, args, kwargs, error)

    return batched


def _map_at(rule: Callable[..., Any], operator: "Operator", args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Runs a rule on tensors without this level of vmap, and gives its results that level again."""
    interpreter = retrieve_current_functorch_interpreter()
    bound = functools.partial(rule, operator)
    return custom_function_call_vmap_helper(interpreter, bound, operator.torch_op, *args, **kwargs)  # type: ignore[arg-type]


def _is_batched(value: Any) -> bool:
    return any(torch._C._functorch.is_batchedtensor(tensor) for tensor in _tensors(value))


def _tensors(value: Any) -> list[Tensor]:
    return [tensor for tensor in (value if isinstance(value, list | tuple) else [value]) if isinstance(tensor, Tensor)]


def _adds_to_the_group(operator: "Operator", args: Sequence[Any]) -> bool:
    """Whether the mapped dimension is one more dimension of ``*batch``: all mapped inputs and all outputs have it."""
    definition = operator.definition
    if len(definition.batches) != 1 or any(item.shape.batch is None for item in definition.outputs):
        return False
    mapped = [item for item, value in zip(definition.inputs, args, strict=False) if _is_batched(value)]
    return all(item.shape.batch is not None for item in mapped)


def _as_leading_dimension(operator: "Operator", info: Any, in_dims: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    def lead(value: Any, dim: Any) -> Any:
        if isinstance(value, list | tuple):
            return [lead(one, its) for one, its in zip(value, dim, strict=True)]
        return value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)

    given = [
        lead(value, dim) if value is not None and item.shape.batch is not None else value
        for item, value, dim in zip(operator.definition.inputs, args, in_dims, strict=False)
    ]
    result = operator.torch_op(*given, **kwargs)
    return result, (0,) * len(result) if isinstance(result, tuple) else 0


def _loop(operator: "Operator", args: Sequence[Any], kwargs: dict[str, Any], reason: RuntimeError | None) -> Any:
    _note(operator.definition.name, "native_only=True" if reason is None else str(reason).splitlines()[0])
    return _map_at(_one_by_one, operator, args, kwargs)


@functools.cache
def _note(name: str, reason: str) -> None:
    warnings.warn(
        f"{name}: torch.vmap runs this operator in a loop, one call an element, because its reference cannot be mapped"
        f" ({reason}). Give its inputs and outputs a leading group `*batch`, or write the reference with tensor"
        " operations.",
        stacklevel=2,
    )


def _one_by_one(operator: "Operator", info: Any, in_dims: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    def element(value: Any, dim: Any, index: int) -> Any:
        if isinstance(value, list | tuple):
            return [element(one, its, index) for one, its in zip(value, dim, strict=True)]
        return value if dim is None else value.select(dim, index)

    results = [
        operator.torch_op(*(element(value, dim, i) for value, dim in zip(args, in_dims, strict=True)), **kwargs)
        for i in range(info.batch_size)
    ]
    if not isinstance(results[0], tuple):
        return _stack(operator, results), 0
    return tuple(_stack(operator, list(column)) for column in zip(*results, strict=True)), (0,) * len(results[0])


def _stack(operator: "Operator", values: list[Any]) -> Any:
    if isinstance(values[0], list):
        return [_stack(operator, list(column)) for column in zip(*values, strict=True)]
    shapes = sorted({tuple(value.shape) for value in values})
    if len(shapes) > 1:
        raise CallError(
            f"{operator.definition.name}: under torch.vmap the elements give outputs of different shapes, {shapes[0]}"
            f" and {shapes[1]}, which make no tensor. Call the operator in a loop of your own."
        )
    return torch.stack(values)
