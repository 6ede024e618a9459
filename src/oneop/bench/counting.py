"""What one call has to do: bytes from the sizes of its tensors, floating operations from the reference's ATen calls.

torch's own counter (``torch.utils.flop_counter``) knows products and convolutions only, and calls the rest zero. Here
it is asked for those; elementwise arithmetic and sums are counted by their elements; and what has no agreed number of
operations, such as an exponential, is named instead of guessed.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

ELEMENTWISE = {
    "add": 1,
    "sub": 1,
    "rsub": 1,
    "mul": 1,
    "div": 1,
    "neg": 1,
    "abs": 1,
    "sqrt": 1,
    "reciprocal": 1,
    "square": 1,
    "maximum": 1,
    "minimum": 1,
    "clamp": 2,
    "clamp_min": 1,
    "clamp_max": 1,
    "relu": 1,
    "threshold_backward": 1,
    "addcmul": 3,
    "addcdiv": 3,
    "lerp": 3,
}
"""Floating operations for one element of the result."""

REDUCTIONS = {"sum": 1, "mean": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "prod": 1, "cumsum": 1, "dot": 2, "mv": 2}
"""Floating operations for one element of the largest tensor that goes in."""

NOTHING = frozenset(
    """
    clone copy _to_copy to contiguous empty empty_like new_empty zeros zeros_like new_zeros ones ones_like full
    full_like new_full fill zero arange scalar_tensor lift_fresh lift_fresh_copy detach cat stack index gather
    index_select masked_fill masked_select masked_scatter where scatter slice_scatter select_backward slice_backward
    select_scatter repeat roll flip tril triu constant_pad_nd embedding nonzero sort topk argmax argmin argsort unique2
    _unique2 one_hot _local_scalar_dense item eq ne lt le gt ge logical_and logical_or logical_not logical_xor
    bitwise_and bitwise_or bitwise_not isnan isinf isfinite any all sign _unsafe_view _reshape_alias view_copy
    empty_strided new_empty_strided resize_ set_ is_same_size equal searchsorted bucketize bincount
    """.split()  # noqa: SIM905
)
"""They move, compare or make values, and compute none."""


class Counter(TorchDispatchMode):
    """Adds up what runs inside: ``flops``, and the names of those that it cannot count."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self.uncounted: dict[str, None] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        count = operations(func, args, kwargs or {}, result)
        if count is None:
            self.uncounted[str(func.overloadpacket)] = None
        else:
            self.flops += count
        return result


def operations(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int | None:
    """The floating operations of one ATen call; None where no number is agreed on."""
    packet = func.overloadpacket
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=result))
    name = packet.__name__
    if func.namespace == "aten" and (func.is_view or name in NOTHING or name.rstrip("_") in NOTHING):
        return 0
    first = result[0] if isinstance(result, tuple | list) and result else result
    if not isinstance(first, Tensor) or not (first.dtype.is_floating_point or _any_floating(args)):
        return 0
    if func.namespace != "aten":
        return None
    base = name.rstrip("_")
    if base == "pow":
        return _power(args, first)
    if base in ELEMENTWISE:
        scaled = 1 if base in ("add", "sub", "rsub") and kwargs.get("alpha", 1) != 1 else 0
        return (ELEMENTWISE[base] + scaled) * first.numel()
    if base in REDUCTIONS:
        tensors = [value.numel() for value in args if isinstance(value, Tensor)]
        return REDUCTIONS[base] * max(tensors, default=0)
    return None


def _any_floating(args: tuple[Any, ...]) -> bool:
    return any(isinstance(value, Tensor) and value.dtype.is_floating_point for value in args)


def _power(args: tuple[Any, ...], result: Tensor) -> int | None:
    """Small whole powers are products."""
    power = args[1] if len(args) > 1 else None
    if isinstance(power, int | float) and power in (0, 1, 2, 3, 4):
        return (0, 0, 1, 2, 2)[int(power)] * result.numel()
    return None


def count(run: Callable[[], Any]) -> tuple[int | None, tuple[str, ...]]:
    """The floating operations of what ``run`` does, and what could not be counted in it.

    The first is None where nothing but uncounted operations was found.
    """
    with Counter() as counter:
        run()
    uncounted = tuple(counter.uncounted)
    return (None if uncounted and counter.flops == 0 else counter.flops), uncounted


def bytes_of(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
