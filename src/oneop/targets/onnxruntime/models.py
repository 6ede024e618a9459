"""What a session needs to know of an ONNX model before ONNX Runtime reads it: its nodes and its fingerprints.

Reads the file itself: a session needs ONNX Runtime only, and weights are stepped over, not loaded.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Protocol

from oneop.errors import ExportError
from oneop.inspection.reading import FINGERPRINT
from oneop.inspection.wire import BYTES, Span, Wire, WireError

# Field numbers of onnx.proto.
_MODEL_GRAPH, _MODEL_METADATA, _MODEL_FUNCTIONS = 7, 14, 25
_GRAPH_NODE, _FUNCTION_NODE = 1, 7
_NODE_TYPE, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 6, 11
_ENTRY_KEY, _ENTRY_VALUE = 1, 2


class ModelProto(Protocol):
    """``onnx.ModelProto``."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802


@dataclass(frozen=True)
class Model:
    """``source`` is what InferenceSession takes; ``nodes`` are the (domain, type) of all nodes, in subgraphs too."""

    source: str | bytes
    nodes: frozenset[tuple[str, str]]
    fingerprints: dict[str, str]


def read_model(model: "str | PathLike[str] | bytes | ModelProto") -> Model:
    """Raises ExportError where there is no such file or it is not a model."""
    if isinstance(model, bytes):
        return _or_damaged(_read(Wire(model), model), "the bytes given")
    if not isinstance(model, str | PathLike):
        return read_model(model.SerializeToString())
    path = fspath(model)
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _read(Wire(content), path)
    except ValueError:  # an empty file cannot be mapped
        raise ExportError(f"{path} is empty. Export the model again.") from None
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror}. Give the path of an ONNX model.") from error
    return _or_damaged(found, path)


def _or_damaged(found: Model | None, what: str) -> Model:
    if found is None:
        raise ExportError(f"{what}: this is not an ONNX model, or a damaged one. Export it again.")
    return found


def _read(wire: Wire, source: str | bytes) -> Model | None:
    """None where the content is no model."""
    nodes: set[tuple[str, str]] = set()
    fingerprints: dict[str, str] = {}
    found_graph = False
    try:
        for number, span in _messages(wire, (0, len(wire))):
            if number == _MODEL_GRAPH:
                found_graph = True
                nodes.update(_nodes(wire, span, _GRAPH_NODE))
            elif number == _MODEL_FUNCTIONS:
                nodes.update(_nodes(wire, span, _FUNCTION_NODE))
            elif number == _MODEL_METADATA:
                entry = dict(_messages(wire, span))
                key, text = (_text(wire, entry.get(number)) for number in (_ENTRY_KEY, _ENTRY_VALUE))
                if key.startswith(FINGERPRINT):
                    fingerprints[key.removeprefix(FINGERPRINT)] = text
    except (WireError, UnicodeDecodeError, RecursionError):
        found_graph = False
    if not found_graph:
        return None
    return Model(source, frozenset(nodes), fingerprints)


def _nodes(wire: Wire, graph: Span, field: int) -> Iterator[tuple[str, str]]:
    """The nodes of a graph or a function, with those of the graphs in their attributes."""
    for number, node in _messages(wire, graph):
        if number != field:
            continue
        domain = kind = ""
        for part, span in _messages(wire, node):
            if part == _NODE_TYPE:
                kind = _text(wire, span)
            elif part == _NODE_DOMAIN:
                domain = _text(wire, span)
            elif part == _NODE_ATTRIBUTE:
                for inner, subgraph in _messages(wire, span):
                    if inner in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
                        yield from _nodes(wire, subgraph, _GRAPH_NODE)
        yield domain, kind


def _messages(wire: Wire, span: Span) -> Iterator[tuple[int, Span]]:
    """Number and place of each field that has a length."""
    return ((number, (begin, end)) for number, kind, begin, end in wire.fields(span) if kind == BYTES)


def _text(wire: Wire, span: Span | None) -> str:
    return "" if span is None else wire.bytes(span).decode()
