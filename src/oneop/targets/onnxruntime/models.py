"""What a session needs to know of an ONNX model before ONNX Runtime reads it: its nodes and its fingerprints.

Reads protobuf's wire format itself: a session needs ONNX Runtime only, and weights are stepped over, not loaded.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Protocol

from oneop.errors import ExportError

FINGERPRINT = "oneop.fingerprint."
"""The prefix of the metadata that holds the fingerprint of each operator, by ``namespace::base``."""

# Field numbers of onnx.proto.
_MODEL_GRAPH, _MODEL_METADATA, _MODEL_FUNCTIONS = 7, 14, 25
_GRAPH_NODE, _FUNCTION_NODE = 1, 7
_NODE_TYPE, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 6, 11
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


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
        return _or_damaged(_read(memoryview(model), model), "the bytes given")
    if not isinstance(model, str | PathLike):
        return read_model(model.SerializeToString())
    path = fspath(model)
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _read(memoryview(content), path)
    except ValueError:  # an empty file cannot be mapped
        raise ExportError(f"{path} is empty. Export the model again.") from None
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror}. Give the path of an ONNX model.") from error
    return _or_damaged(found, path)


def _or_damaged(found: Model | None, what: str) -> Model:
    if found is None:
        raise ExportError(f"{what}: this is not an ONNX model, or a damaged one. Export it again.")
    return found


def _read(content: memoryview, source: str | bytes) -> Model | None:
    """None where the content is no model: an exception's frames would keep views of the content alive, and a file
    that is mapped cannot be closed while there are any.
    """
    nodes: set[tuple[str, str]] = set()
    fingerprints: dict[str, str] = {}
    found_graph = False
    try:
        for number, value in _fields(content):
            if number == _MODEL_GRAPH:
                found_graph = True
                nodes.update(_nodes(value, _GRAPH_NODE))
            elif number == _MODEL_FUNCTIONS:
                nodes.update(_nodes(value, _FUNCTION_NODE))
            elif number == _MODEL_METADATA:
                entry = dict(_fields(value))
                key, text = _text(entry.get(_ENTRY_KEY)), _text(entry.get(_ENTRY_VALUE))
                if key.startswith(FINGERPRINT):
                    fingerprints[key.removeprefix(FINGERPRINT)] = text
    except (IndexError, TypeError, UnicodeDecodeError, RecursionError):
        found_graph = False
    if not found_graph:
        return None
    return Model(source, frozenset(nodes), fingerprints)


def _nodes(graph: Any, field: int) -> Iterator[tuple[str, str]]:
    """The nodes of a graph or a function, with those of the graphs in their attributes."""
    for number, node in _fields(graph):
        if number != field:
            continue
        domain = kind = ""
        for part, value in _fields(node):
            if part == _NODE_TYPE:
                kind = _text(value)
            elif part == _NODE_DOMAIN:
                domain = _text(value)
            elif part == _NODE_ATTRIBUTE:
                for inner, subgraph in _fields(value):
                    if inner in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
                        yield from _nodes(subgraph, _GRAPH_NODE)
        yield domain, kind


def _text(value: Any) -> str:
    return "" if value is None else bytes(value).decode()


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and content of each field: a memoryview where it has a length, an int where it is a varint, or None."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
        elif kind == _BYTES:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise IndexError("a field ends behind its message")
            yield number, message[at : at + size]
            at += size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
            yield number, None
        else:
            raise IndexError(f"wire type {kind}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError("a number of more than 64 bits")
