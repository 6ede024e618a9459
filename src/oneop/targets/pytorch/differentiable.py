"""Refuses what would be a silent zero: a gradient or a tangent asked of a reference that autograd cannot follow."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.autograd.forward_ad import unpack_dual

from oneop.errors import CallError


def checked(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """The reference as autograd runs it: what it returns must depend on what is differentiated, if anything is.

    Not for gradient operators: a second derivative may well be zero.
    """

    def reference(*args: Any, **kwargs: Any) -> Any:
        result = compute(*args, **kwargs)
        if not torch._C._dispatch_tls_local_exclude_set().has(DispatchKey.AutogradFunctionality):
            _require(name, _floating(args), _floating(result if isinstance(result, tuple | list) else (result,)))
        return result

    return reference


def _floating(values: Sequence[Any]) -> list[Tensor]:
    flat = (entry for value in values for entry in (value if isinstance(value, list | tuple) else (value,)))
    return [entry for entry in flat if isinstance(entry, Tensor) and entry.is_floating_point()]


def _require(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    if not outputs:
        return
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    if wanted and not any(tensor.requires_grad for tensor in outputs):
        raise CallError(
            f"{name}: its reference is not differentiable: no output depends on an input in a way autograd can"
            " follow (.detach(), .item(), .data or no_grad in it). Give the operator a gradient, or call it on"
            " detached inputs."
        )
    if any(_has_tangent(tensor) for tensor in inputs) and not any(_has_tangent(tensor) for tensor in outputs):
        raise CallError(
            f"{name}: its reference is not differentiable in forward mode: no output depends on an input in a way"
            " autograd can follow (.detach(), .item(), .data or no_grad in it). Call it on inputs without tangents."
        )


def _has_tangent(tensor: Tensor) -> bool:
    return unpack_dual(tensor).tangent is not None
