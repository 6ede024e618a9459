"""What is known of an ONNX file: plain records, for people, for the judges of the runtimes and for JSON."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Identifier(NamedTuple):
    """An operator as a node names it."""

    domain: str
    type: str
    overload: str = ""

    def __str__(self) -> str:
        name = f"{self.domain}::{self.type}" if self.domain else self.type
        return f"{name}:{self.overload}" if self.overload else name


MAIN = Identifier("", "")
"""Stands for the graph itself among the functions."""


@dataclass(frozen=True)
class Value:
    """A tensor beside a node; an absent input has no name. ``type`` is None where the file does not state it."""

    name: str
    type: str | None = None

    @property
    def dtype(self) -> str | None:
        """Of a tensor: ``float32`` of ``float32[batch, 5]``."""
        head = (self.type or "").partition("[")[0]
        return head if head.isidentifier() else None


@dataclass(frozen=True)
class Attribute:
    """``kind`` is ONNX's name for it in lower case. ``count`` is the length of a list, of which ``value`` may hold the
    beginning. A tensor, a graph or a reference is described in words.
    """

    name: str
    kind: str
    value: Any
    count: int | None = None


@dataclass(frozen=True)
class Node:
    """``place`` says where it stands: ``graph``, ``function demo::Scale``, ``graph, then_branch of If 'choose'``."""

    name: str
    place: str
    attributes: tuple[Attribute, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass
class Operator:
    """One operator outside the standard, and its nodes: all are counted, the first ones are described."""

    identifier: Identifier
    count: int = 0
    nodes: list[Node] = field(default_factory=list)


@dataclass
class Function:
    """A function of the file. ``calls`` counts the nodes in it that are outside the standard, or other functions."""

    identifier: Identifier
    inputs: tuple[str, ...] = ()
    node_count: int = 0
    calls: dict[Identifier, int] = field(default_factory=dict)


@dataclass
class OnnxFile:
    """What the file says of itself.

    Attributes:
        main: the graph, as a function.
        external: the files that hold weights, with the number of bytes that the model expects in each.
        names: the tensors of the graph that have the name of a function's input.
    """

    path: Path
    ir_version: int | None = None
    producer: str = ""
    opset_imports: dict[str, int] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    node_count: int = 0
    operators: dict[Identifier, Operator] = field(default_factory=dict)
    functions: dict[Identifier, Function] = field(default_factory=dict)
    main: Function = field(default_factory=lambda: Function(MAIN))
    external: dict[str, int] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
