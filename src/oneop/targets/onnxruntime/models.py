"""What a session needs to know of an ONNX model before ONNX Runtime reads it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from oneop.errors import ExportError

if TYPE_CHECKING:
    import onnx

FINGERPRINT = "oneop.fingerprint."
"""The prefix of the metadata that holds the fingerprint of each operator, by ``namespace::base``."""


@dataclass(frozen=True)
class Model:
    """``source`` is what InferenceSession takes; ``nodes`` are the (domain, type) of all nodes, in subgraphs too."""

    source: str | bytes
    nodes: frozenset[tuple[str, str]]
    fingerprints: dict[str, str]


def read_model(model: "str | PathLike[str] | bytes | onnx.ModelProto") -> Model:
    """Reads the graph, not the weights. Raises ExportError where there is no such file or it is not a model."""
    import onnx

    if isinstance(model, onnx.ModelProto):
        return _describe(model, model.SerializeToString())
    what = "the bytes given" if isinstance(model, bytes) else fspath(model)
    if not isinstance(model, bytes) and not Path(model).is_file():
        raise ExportError(f"{what}: there is no such file. Give the path of an ONNX model.")
    try:
        proto = (
            onnx.load_model_from_string(model)
            if isinstance(model, bytes)
            else onnx.load(str(model), load_external_data=False)
        )
    except Exception as error:  # protobuf's own class differs between its implementations
        raise ExportError(f"{what}: this is not an ONNX model ({error}). Export it again.") from error
    return _describe(proto, model if isinstance(model, bytes) else fspath(model))


def _describe(proto: "onnx.ModelProto", source: str | bytes) -> Model:
    bodies = [proto.graph.node, *(function.node for function in proto.functions)]
    fingerprints = {
        entry.key.removeprefix(FINGERPRINT): entry.value
        for entry in proto.metadata_props
        if entry.key.startswith(FINGERPRINT)
    }
    nodes = frozenset((node.domain, node.op_type) for body in bodies for node in _nodes(body))
    return Model(source, nodes, fingerprints)


def _nodes(nodes: "Iterable[onnx.NodeProto]") -> "Iterator[onnx.NodeProto]":
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)
