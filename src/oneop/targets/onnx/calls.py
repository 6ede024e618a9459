"""One call of an operator as a traced model holds it: what the body of its fallback function may depend on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from oneop.definition.record import Definition, Input

if TYPE_CHECKING:
    from oneop.operator import Operator

MARK = "oneop.call"
"""Where a node that is not finished yet keeps its Mark."""


INPUTS = "oneop.inputs"
"""Where a finished node keeps how many inputs it has, absent ones at the end included."""


@dataclass(frozen=True)
class Tensor:
    """What is known of one tensor: ``sizes`` holds None where the size is free."""

    dtype: str
    sizes: tuple[int | None, ...]


@dataclass(frozen=True)
class Call:
    """One call. ``inputs`` has the tensors of each input: none where it is absent, several where it is variadic."""

    operator: "Operator"
    inputs: tuple[tuple[Tensor, ...], ...]
    attributes: Mapping[str, Any]

    @property
    def definition(self) -> Definition:
        return self.operator.definition

    @property
    def identifier(self) -> tuple[str, str]:
        """The domain and type of the node."""
        return self.definition.namespace, self.definition.onnx_name

    @property
    def input_count(self) -> int:
        """How many inputs the node has. Absent ones count, at the end too: onnx's ReferenceEvaluator wants as many as
        the function has.
        """
        variadic = [len(tensors) for item, tensors in self._inputs() if item.arity == "variadic"]
        return len(self.inputs) - len(variadic) + sum(variadic)

    def _inputs(self) -> Iterator[tuple[Input, tuple[Tensor, ...]]]:
        yield from zip(self.definition.inputs, self.inputs, strict=True)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are there, by the name of the function's formal input."""
        for item, tensors in self._inputs():
            for index, tensor in enumerate(tensors):
                yield (f"{item.name}_{index}" if item.arity == "variadic" else item.name), tensor

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each element type that an input of this call has."""
        return {item.element.name: tensors[0].dtype for item, tensors in self._inputs() if tensors}


@dataclass(frozen=True)
class Mark:
    """What a node carries until its fallback is in place. ``fallback`` is None in the trace of another body."""

    call: Call
    fallback: str | None
