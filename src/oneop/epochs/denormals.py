"""Denormal numbers: how many there are among parameters, gradients and optimizer state, and what they cost here."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from oneop.epochs.collector import tensors_in
from oneop.epochs.records import Denormals

_EXPONENTS = {
    torch.float32: (torch.int32, 0x7F800000, 0x7FFFFFFF),
    torch.float64: (torch.int64, 0x7FF0000000000000, 0x7FFFFFFFFFFFFFFF),
    torch.bfloat16: (torch.int16, 0x7F80, 0x7FFF),
}
"""By dtype: integers of its size, the bits of the exponent, all but the sign. float16 is not computed in as it is."""

A_TENSOR, ALL = 256, 512
"""How many elements of a tensor, and how many tensors, are looked at."""

OPERATIONS: dict[str, tuple[tuple[str, Callable[[Tensor], Tensor]], ...]] = {
    "parameters": (("mul", lambda x: x * 0.5), ("div", lambda x: x / 3.0), ("exp", torch.exp)),
    "gradients": (("mul", lambda x: x * 0.5), ("div", lambda x: x / 3.0), ("add", lambda x: x + x)),
    "optimizer state": (("sqrt", torch.sqrt), ("div", lambda x: x / 3.0), ("mul", lambda x: x * 0.5)),
}
"""What training does with each group of numbers, to be timed."""


def denormal_shares(model: nn.Module, optimizers: Sequence[Optimizer]) -> Denormals:
    """Bits are looked at, not values: a processor that treats denormals as zero compares them equal to it."""
    parameters = list(model.parameters())
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    state = [tensor for optimizer in optimizers for tensor in tensors_in(list(optimizer.state.values()))]
    return Denormals(_share(parameters), _share(gradients), _share(state))


def penalty(group: str) -> dict[str, float]:
    """How many times as long operations take on denormals as on ordinary numbers: here, now, on one tensor."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            return {name: _ratio(operation) for name, operation in OPERATIONS[group]}
    finally:
        torch.set_num_threads(threads)


def _share(tensors: Iterable[Tensor]) -> float | None:
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    wanted = [tensor for tensor in tensors if _is_looked_at(tensor)]
    for tensor in wanted[:: max(1, -(-len(wanted) // ALL))]:
        by_dtype.setdefault(tensor.dtype, []).append(_some(tensor.detach()))
    count = denormal = 0
    for dtype, parts in by_dtype.items():
        integers, exponent, magnitude = _EXPONENTS[dtype]
        bits = torch.cat(parts).view(integers)
        found = ((bits & exponent) == 0) & ((bits & magnitude) != 0)
        count += bits.numel()
        denormal += int(found.sum())
    return denormal / count if count else None


def _is_looked_at(tensor: Tensor) -> bool:
    return (
        tensor.dtype in _EXPONENTS
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.numel() > 1  # a counter of steps is no number that training computes with
        and type(tensor) in (Tensor, nn.Parameter)
        and tensor.is_contiguous()
    )


def _some(tensor: Tensor) -> Tensor:
    """Evenly spread elements, without a copy."""
    step = max(1, tensor.numel() // A_TENSOR)
    return tensor.as_strided((min(tensor.numel(), A_TENSOR),), (step,), tensor.storage_offset())


def _ratio(operation: Callable[[Tensor], Tensor]) -> float:
    denormal, ordinary = torch.full((16384,), 1e-39), torch.full((16384,), 1e-3)
    ratios = []
    for _ in range(9):
        times = []
        for values in (denormal, ordinary):
            begin = time.perf_counter()
            operation(values)
            times.append(time.perf_counter() - begin)
        ratios.append(times[0] / times[1])
    return statistics.median(ratios)
