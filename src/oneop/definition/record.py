"""The definition of an operator as a plain immutable record. Every target reads this, and nothing of another target."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from oneop.definition.attributes import REQUIRED, AttributeKind
from oneop.definition.dims import Shape
from oneop.definition.dtypes import ElementType

Arity = Literal["required", "optional", "variadic"]
Layout = Literal["contiguous", "strided"]

NEEDS = "needs"
"""The attribute of a gradient operator that says, one bit an input of the operator, whose gradient is asked for."""


@dataclass(frozen=True)
class Input:
    """One tensor parameter. A variadic input takes one or more tensors that all fit ``element`` and ``shape``."""

    name: str
    arity: Arity
    element: ElementType
    shape: Shape
    has_default: bool = False


@dataclass(frozen=True)
class Attribute:
    """One keyword-only parameter. ``default`` is REQUIRED where the definition gives none; lists are tuples here.

    ``choices`` holds the values of a ``Literal``; an ``optional`` attribute admits None.
    """

    name: str
    kind: AttributeKind
    default: Any = REQUIRED
    optional: bool = False
    choices: tuple[Any, ...] | None = None

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True)
class Output:
    """One result. In a gradient operator ``mirrors`` names the operator's input whose gradient this is.

    A mirroring output follows its input's arity: as many tensors as a variadic input has, and a tensor of shape (0,)
    where an optional input is absent. Its tensors have exactly the shapes and the dtype of that input.
    """

    name: str
    element: ElementType
    shape: Shape
    mirrors: str | None = None


@dataclass(frozen=True)
class Definition:
    """What an operator is, to every target.

    ``name`` is ``namespace::base``. ``inputs`` are in positional order, ``attributes`` in keyword order.
    ``differentiates`` is set on a gradient operator: the names of the operator's inputs, in the bit order of the
    ``needs`` attribute, which is then the last attribute.
    """

    name: str
    inputs: tuple[Input, ...]
    attributes: tuple[Attribute, ...]
    outputs: tuple[Output, ...]
    onnx_name: str
    layout: Layout = "contiguous"
    native_only: bool = False
    differentiates: tuple[str, ...] = ()
    doc: str = ""

    @property
    def namespace(self) -> str:
        return self.name.partition("::")[0]

    @property
    def base(self) -> str:
        return self.name.partition("::")[2]

    @property
    def is_gradient(self) -> bool:
        return bool(self.differentiates)

    @cached_property
    def _tensors(self) -> tuple[Input | Output, ...]:
        return (*self.inputs, *self.outputs)

    @cached_property
    def elements(self) -> tuple[ElementType, ...]:
        """The dtype variables, in the order in which the inputs (then the outputs) name them."""
        return tuple(dict.fromkeys(parameter.element for parameter in self._tensors))

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """The names that sizes bind, in order of first appearance: input dimensions, then unknown (``?k``) ones."""
        bound = [name for item in self.inputs for name in item.shape.binds()]
        unknown = [name for item in self.outputs for name in item.shape.unknown()]
        return tuple(dict.fromkeys((*bound, *unknown)))

    @cached_property
    def batches(self) -> tuple[str, ...]:
        """The names of the leading groups (``*batch``), in order of first appearance."""
        groups = (parameter.shape.batch for parameter in self._tensors)
        return tuple(dict.fromkeys(group for group in groups if group is not None))

    def input(self, name: str) -> Input:
        return next(item for item in self.inputs if item.name == name)

    def attribute(self, name: str) -> Attribute:
        return next(item for item in self.attributes if item.name == name)

    def parameters(self) -> Iterator[str]:
        yield from (item.name for item in self.inputs)
        yield from (item.name for item in self.attributes)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything in the signature that a kernel or an exported file depends on: 16 hexadecimal digits."""
        signature = {
            "name": self.name,
            "onnx_name": self.onnx_name,
            "layout": self.layout,
            "differentiates": self.differentiates,
            "inputs": [[i.name, i.arity, *_element(i.element), str(i.shape)] for i in self.inputs],
            "attributes": [
                [a.name, a.kind.name, None if a.is_required else repr(a.default), a.optional, repr(a.choices)]
                for a in self.attributes
            ],
            "outputs": [[o.name, *_element(o.element), str(o.shape), o.mirrors] for o in self.outputs],
        }
        return hashlib.sha256(json.dumps(signature, sort_keys=True).encode()).hexdigest()[:16]


def _element(element: ElementType) -> list[str]:
    return [element.name, *(dtype.name for dtype in element.dtypes)]
