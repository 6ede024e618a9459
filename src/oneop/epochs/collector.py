"""Python's garbage collector: the time it takes, and the objects that it knows."""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
from torch import Tensor

_FAKE = frozenset({"FakeTensor", "FunctionalTensor", "ProxyTensor"})
"""Tensors without numbers, which torch.compile keeps."""


class CollectorTime:
    """Seconds in the garbage collector and collections of each generation, while it is installed."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = 0.0
        self.seconds = 0.0
        self.collections = [0, 0, 0]

    def install(self) -> None:
        gc.callbacks.append(self._collected)

    def remove(self) -> None:
        gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._since = self._now()
        else:
            self.seconds += self._now() - self._since
            self.collections[info["generation"]] += 1


@dataclass(frozen=True)
class Objects:
    """How many tensors are alive, and the bytes of their storages, each once."""

    tensors: int
    bytes: int


class _Kinds(dict[type, bool]):
    """Whether a type is one of tensors, worked out once a type: the look-ups then stay in C."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = found = Tensor in type.mro(kind) and kind.__name__ not in _FAKE if kind is not type else False
        return found


_kinds = _Kinds()


def live_tensors() -> list[Tensor]:
    """Every tensor that Python knows. Looks at every object: some 50 ms in an ordinary program."""
    objects = gc.get_objects()
    return list(compress(objects, map(_kinds.__getitem__, map(type, objects))))


def count_objects() -> Objects:
    tensors = live_tensors()
    sizes: dict[int, int] = {}
    for tensor in tensors:
        if type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            sizes[storage._cdata] = storage.nbytes()
    return Objects(len(tensors), sum(sizes.values()))


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors that a value is, or that it holds as a list, tuple or dictionary."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    return []
