"""torch.autocast over an operator: brings the floating inputs of one dtype variable to one dtype, by its policy."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet

from oneop import registry
from oneop.definition.dtypes import ElementType

if TYPE_CHECKING:
    from oneop.operator import Operator

POLICIES = ("promote", "lower", "float32")
"""``promote``: the widest of the given dtypes. ``lower``: autocast's own dtype. ``float32``: float32."""

KEYS = {"AutocastCPU": "cpu", "AutocastCUDA": "cuda"}


def autocast_implementation(name: str, key: str, overload: str = "default") -> Callable[..., Any]:
    """What runs at one of torch's Autocast keys, which only an active ``torch.autocast`` turns on."""
    device_type = KEYS[key]
    below = DispatchKeySet(getattr(DispatchKey, key))

    def autocast(*args: Any, **kwargs: Any) -> Any:
        operator = registry.operators()[name]
        with torch._C._ExcludeDispatchKeyGuard(below):
            called = getattr(operator.torch_op.overloadpacket, overload)
            return called(*_cast(operator, args, device_type), **kwargs)

    return autocast


def _cast(operator: "Operator", args: Sequence[Any], device_type: str) -> list[Any]:
    inputs = operator.definition.inputs
    wanted: dict[str, torch.dtype | None] = {}
    for element in {item.element for item in inputs}:
        own = [value for item, value in zip(inputs, args, strict=False) if item.element == element]
        eligible = [tensor for value in own for tensor in _tensors(value) if _is_eligible(tensor, device_type)]
        wanted[element.name] = _target(element, operator.autocast, device_type, [t.dtype for t in eligible])
    return [_to(value, wanted[item.element.name], device_type) for item, value in zip(inputs, args, strict=False)]


def _tensors(value: Any) -> Iterable[Tensor]:
    return (item for item in (value if isinstance(value, list | tuple) else [value]) if isinstance(item, Tensor))


def _is_eligible(tensor: Tensor, device_type: str) -> bool:
    """As torch does: floating tensors of the device, but never float64."""
    return tensor.is_floating_point() and tensor.dtype != torch.float64 and tensor.device.type == device_type


def _target(element: ElementType, policy: str, device_type: str, given: Sequence[torch.dtype]) -> torch.dtype | None:
    if not given:
        return None
    widest = given[0]
    for dtype in given[1:]:
        widest = torch.promote_types(widest, dtype)
    chosen = {"promote": widest, "lower": torch.get_autocast_dtype(device_type), "float32": torch.float32}[policy]
    admitted = [getattr(torch, dtype.name) for dtype in element.dtypes]
    return chosen if chosen in admitted else widest if widest in admitted else None


def _to(value: Any, dtype: torch.dtype | None, device_type: str) -> Any:
    if isinstance(value, list | tuple):
        return [_to(item, dtype, device_type) for item in value]
    if dtype is None or not isinstance(value, Tensor) or not _is_eligible(value, device_type):
        return value
    return value.to(dtype)
