"""One call of an operator as a record: its inputs and attributes, and how they were made."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from oneop.check.values import Made
from oneop.definition.dtypes import DType
from oneop.definition.record import Definition


@dataclass(frozen=True)
class Structure:
    """What a compiled graph or an exported file fixes of a call: everything but sizes and values.

    ``dtypes`` has one entry for each of ``definition.elements``; list attributes are tuples here.
    """

    dtypes: tuple[DType, ...]
    present: frozenset[str] = frozenset()
    counts: tuple[tuple[str, int], ...] = ()
    ranks: tuple[tuple[str, int], ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, eq=False)
class Case:
    """One call: an input is a tensor, None or a list of tensors; every attribute has a value.

    ``made`` says how each tensor was made (a layout and a style of values), ``origin`` where the case comes from:
    ``"drawn"``,
    or the name of the user's example; ``seed`` decides what comes on top, such as incoming gradients;
    ``plain_gradients`` has the same incoming gradients laid out afresh.
    Cases are compared by identity.
    """

    definition: Definition
    structure: Structure
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    sizes: dict[str, int] = field(default_factory=dict)
    made: dict[str, Made] = field(default_factory=dict)
    origin: str = "drawn"
    seed: int = 0
    plain_gradients: bool = False

    @property
    def tensors(self) -> list[Tensor]:
        return flat(self.inputs)

    @property
    def labels(self) -> list[str]:
        """The names of ``tensors``: an input's name, or ``xs[0]`` where it is variadic."""
        return labels(self.definition, self.inputs)

    @property
    def strided(self) -> list[str]:
        """The tensors that do not lie in memory as a fresh one does."""
        return [
            label
            for label, tensor in zip(self.labels, self.tensors, strict=True)
            if not tensor.is_contiguous() or tensor.storage_offset() != 0
        ]

    def with_inputs(self, tensors: Sequence[Tensor]) -> "Case":
        """The same call with other tensors in the same places."""
        return replace(self, inputs=rebuild(self.inputs, tensors))

    def contiguous(self) -> "Case":
        """The same call with each tensor laid out afresh."""
        return self.with_inputs([tensor.clone(memory_format=torch.contiguous_format) for tensor in self.tensors])

    def copied(self) -> "Case":
        """The same call in memory of its own, with every stride as it is."""
        return self.with_inputs([_copied(tensor) for tensor in self.tensors])

    def describe(self) -> str:
        """One line: dtypes, sizes, what is absent, layouts, attributes that are not the default."""
        parts = []
        for item, value in zip(self.definition.inputs, self.inputs, strict=True):
            if value is None:
                parts.append(f"{item.name} absent")
                continue
            shown = [_described(tensor) for tensor in flat([value])]
            parts.append(
                f"{item.name} {', '.join(shown) if item.arity != 'variadic' else '[' + ', '.join(shown) + ']'}"
            )
        for attribute in self.definition.attributes:
            parts.append(f"{attribute.name}={self.attributes[attribute.name]!r}")
        return "; ".join(parts)


def flat(inputs: Sequence[Any]) -> list[Tensor]:
    """The tensors of a call in order."""
    return [
        tensor
        for value in inputs
        for tensor in (value if isinstance(value, list | tuple) else [value])
        if isinstance(tensor, Tensor)
    ]


def rebuild(inputs: Sequence[Any], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """One value an input, with these tensors in the places of those that are there."""
    rest = iter(tensors)
    return tuple(
        [next(rest) for _ in value] if isinstance(value, list | tuple) else None if value is None else next(rest)
        for value in inputs
    )


def labels(definition: Definition, inputs: Sequence[Any]) -> list[str]:
    return [
        f"{item.name}[{index}]" if item.arity == "variadic" else item.name
        for item, value in zip(definition.inputs, inputs, strict=True)
        for index, _ in enumerate(flat([value]))
    ]


def _copied(tensor: Tensor) -> Tensor:
    storage = tensor.detach().untyped_storage().clone()
    return tensor.new_empty(0).set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def _described(tensor: Tensor) -> str:
    layout = "" if tensor.is_contiguous() and not tensor.storage_offset() else f" strides {tuple(tensor.stride())}"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}{layout}"
