"""Gradients of operators whose forward runs in Python. Native ones have the same rules in runtime.cpp."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C import DispatchKeySet
from torch._functorch.autograd_function import (  # type: ignore[attr-defined]
    enable_single_level_autograd_function,
)
from torch._ops import OpOverload
from torch.autograd.forward_ad import _set_fwd_grad_enabled, unpack_dual
from torch.autograd.function import _SingleLevelFunction

from oneop import registry
from oneop.definition.gradient import differentiable_outputs
from oneop.definition.record import NEEDS

if TYPE_CHECKING:
    from oneop.operator import Operator


def autograd_implementation(name: str) -> Callable[..., Any]:
    """What runs at torch's Autograd key.

    Without a written gradient, and for forward mode, the reference runs under torch's own autograd: its twin is
    composite.
    """

    def autograd(keys: DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        operator = registry.operators()[name]
        tensors = flat(args)
        needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        has_tangent = any(unpack_dual(tensor).tangent is not None for tensor in tensors)
        if has_tangent or (needs_gradient and operator.gradient_operator is None):
            return operator.torch_reference(*args, **kwargs)
        if needs_gradient:
            return apply(WrittenGradient, Call(operator, operator.torch_op, keys, args, kwargs))
        return below(operator.torch_op, keys, args, kwargs)

    return autograd


def flat(args: Sequence[Any]) -> list[Tensor]:
    return [
        tensor
        for value in args
        for tensor in (value if isinstance(value, list | tuple) else [value])
        if tensor is not None
    ]


def below(overload: OpOverload, keys: DispatchKeySet, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Calls what stands under the Autograd key."""
    with torch._C._AutoDispatchBelowAutograd():
        return overload.redispatch(keys & torch._C._after_autograd_keyset, *args, **kwargs)


class Call:
    """What one node remembers that is no input."""

    def __init__(
        self,
        operator: "Operator",
        overload: OpOverload,
        keys: DispatchKeySet,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> None:
        self.operator = operator
        self.overload = overload
        self.keys = keys
        self.kwargs = kwargs
        self.args = args
        inputs = [*args, *[None] * (len(operator.definition.inputs) - len(args))]
        self.counts = [
            len(value) if isinstance(value, list | tuple) else None if value is None else -1 for value in inputs
        ]

    def inputs(self, tensors: Sequence[Tensor]) -> tuple[list[Any], list[Tensor]]:
        """One value an input from the flat tensors, and the tensors behind them."""
        rest = list(tensors)
        values: list[Any] = []
        for count in self.counts:
            if count is None:
                values.append(None)
            elif count < 0:
                values.append(rest.pop(0))
            else:
                values.append([rest.pop(0) for _ in range(count)])
        return values, rest


class WrittenGradient(_SingleLevelFunction):
    """Forward is the operator, backward its gradient operator, each by the overload that was called.

    torch's Autograd key is already one level of functorch's transforms; a ``Function`` would start them again.
    """

    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Tensor) -> Any:
        operator = call.operator
        inputs, _ = call.inputs(tensors)
        # A Function turns gradients off for its forward; under functorch the levels below this one still want theirs.
        with torch.enable_grad(), _set_fwd_grad_enabled(True):
            result = below(call.overload, call.keys, inputs, call.kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        definition = operator.definition
        gradient = operator.gradient_operator
        assert gradient is not None
        wanted = {item.name for item in gradient.definition.inputs}
        kept = [value for item, value in zip(definition.outputs, outputs, strict=True) if item.name in wanted]
        ctx.call = call
        ctx.save_for_backward(*tensors, *kept)
        ctx.mark_non_differentiable(*(value for value in outputs if not value.dtype.is_floating_point))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        call: Call = ctx.call
        operator = call.operator
        gradient = operator.gradient_operator
        assert gradient is not None
        inputs, kept = call.inputs(ctx.saved_tensors)
        given = zip(operator.definition.outputs, gradients, strict=True)
        differentiable = {item.name for item in differentiable_outputs(operator.definition)}
        incoming = [value for item, value in given if item.name in differentiable]
        needed = asked_for(ctx)
        needs = _mask(call, needed)
        attributes = {**call.kwargs, NEEDS: needs}
        gradient_overload = getattr(gradient.torch_op.overloadpacket, call.overload._overloadname)
        result = gradient_overload(*incoming, *inputs, *kept, **attributes)
        values = result if isinstance(result, tuple) else (result,)
        found = {item.mirrors: value for item, value in zip(gradient.definition.outputs, values, strict=True)}
        flat: list[Tensor | None] = []
        for item, count in zip(operator.definition.inputs, call.counts, strict=True):
            if count is None:
                continue
            value = found.get(item.name)
            flat.extend([None] * abs(count) if value is None else value if isinstance(value, list | tuple) else [value])
        return (None, *(value if wanted else None for value, wanted in zip(flat, needed, strict=True)))


def asked_for(ctx: Any) -> list[bool]:
    """Whether the running backward goes on to each of a node's inputs."""
    return [_asked_for(node) for node, _ in ctx.next_functions]


def _asked_for(node: Any) -> bool:
    """Whether the running backward goes on to this node: it may differentiate some inputs only."""
    if node is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # torch says so of a leaf whose gradient is what torch.autograd.grad was asked for
        return True


def _mask(call: Call, needed: Sequence[bool]) -> int:
    """One bit an input of the operator: whether any of its tensors needs a gradient."""
    mask, position = 0, 0
    for index, count in enumerate(call.counts):
        width = 0 if count is None else abs(count)
        mask |= any(needed[position : position + width]) << index
        position += width
    return mask


def apply(function: type[_SingleLevelFunction], call: Call) -> Any:
    """Runs a function of one node over the tensors of a call."""
    with enable_single_level_autograd_function():
        return function.apply(call, *flat(call.args))  # type: ignore[attr-defined]
