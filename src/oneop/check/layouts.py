"""Ways in which the same sizes may lie in memory, each with the Python that makes it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """``apply`` takes a contiguous tensor; ``code`` is the same as text, with ``{x}`` for it. Layouts with stride 0
    repeat elements, so their values differ from the tensor's. ``rank`` is the least number of dimensions.
    """

    name: str
    code: str
    rank: int
    apply: Callable[[Tensor], Tensor]
    needs_elements: bool = False

    def fits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) >= self.rank and not (self.needs_elements and 0 in shape)


def _sliced(x: Tensor) -> Tensor:
    return x.repeat_interleave(2, -1)[..., ::2]


def _padded(x: Tensor) -> Tensor:
    return torch.cat([x] * 2, -1)[..., : x.shape[-1]]


def _offset(x: Tensor) -> Tensor:
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)


def _last(x: Tensor) -> Tensor:
    return x[..., :1].expand(x.shape)


def _everywhere(x: Tensor) -> Tensor:
    return x.flatten()[0].expand(x.shape)


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout("contiguous", "{x}", 0, lambda x: x),
        Layout("transposed", "{x}.mT.contiguous().mT", 2, lambda x: x.mT.contiguous().mT),
        Layout("sliced", "{x}.repeat_interleave(2, -1)[..., ::2]", 1, _sliced),
        Layout("padded", "torch.cat([{x}] * 2, -1)[..., : {x}.shape[-1]]", 2, _padded),
        Layout("offset", "torch.cat([{x}.new_zeros(1), {x}.flatten()])[1:].view({x}.shape)", 0, _offset),
        Layout("stride 0 in the last dimension", "{x}[..., :1].expand({x}.shape)", 1, _last),
        Layout("stride 0 everywhere", "{x}.flatten()[0].expand({x}.shape)", 1, _everywhere, needs_elements=True),
    )
}
