"""Reads what an ONNX file says of its operators. Weights are stepped over, and a file of unknown origin is no danger:
time and memory are bounded, nothing recurses, and whatever is wrong is an ExportError.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oneop.definition.dtypes import DTYPES
from oneop.errors import ExportError
from oneop.inspection.facts import MAIN, Attribute, Function, Identifier, Node, OnnxFile, Operator, Value
from oneop.inspection.wire import BYTES, FIXED32, VARINT, Span, Wire, WireError, signed

FINGERPRINT = "oneop.fingerprint."
"""The prefix of the metadata that holds the fingerprint of each operator, by ``namespace::base``."""

STANDARD_DOMAINS = (b"", b"ai.onnx")
DEEPEST = 33
"""Graphs inside graphs: each is three messages, and protobuf reads a hundred inside each other."""

MOST_NODES_DESCRIBED = 2_000
MOST_OPERATORS = 10_000
MOST_FUNCTIONS = 100_000
MOST_FILES = 10_000
LONGEST_NAME = 10_000
LONGEST_LIST = 100
"""Entries of an attribute, and inputs of a node, that are described."""
LONGEST_KEPT, MOST_KEPT = 200, 50_000
"""Bytes of an attribute that is remembered as harmless, and how many are."""


class _Model:
    """Field numbers of onnx.proto's ModelProto; the classes below are those of the other messages."""

    IR_VERSION, PRODUCER, PRODUCER_VERSION, GRAPH, OPSET, METADATA, TRAINING, FUNCTIONS = 1, 2, 3, 7, 8, 14, 20, 25


class _Graph:
    NODE, INITIALIZER, INPUT, OUTPUT, VALUE_INFO, SPARSE = 1, 5, 11, 12, 13, 15


class _Function:
    NAME, INPUT, OUTPUT, NODE, DOMAIN, VALUE_INFO, OVERLOAD = 1, 4, 5, 7, 10, 12, 13


class _Node:
    INPUT, OUTPUT, NAME, TYPE, ATTRIBUTE, DOMAIN, OVERLOAD = 1, 2, 3, 4, 5, 7, 8


class _Attribute:
    NAME, FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TENSORS, GRAPHS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    TYPE_PROTO, TYPE_PROTOS, TYPE, REFERENCE, SPARSE, SPARSES = 14, 15, 20, 21, 22, 23


class _Tensor:
    DIMS, TYPE, NAME, EXTERNAL, LOCATION = 1, 2, 8, 13, 14


_KINDS = {
    1: "float", 2: "int", 3: "string", 4: "tensor", 5: "graph", 6: "floats", 7: "ints", 8: "strings", 9: "tensors",
    10: "graphs", 11: "sparse tensor", 12: "sparse tensors", 13: "type", 14: "types",
}  # fmt: skip
_OTHER_TYPES = {
    8: "string", 14: "complex64", 15: "complex128", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2",
    20: "float8_e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4_e2m1", 24: "float8_e8m0", 25: "uint2", 26: "int2",
}  # fmt: skip
_TYPES = {**{dtype.onnx: dtype.name for dtype in DTYPES}, **_OTHER_TYPES}


def read(path: Path, standard_types: frozenset[bytes] | None = None) -> OnnxFile:
    """Everything that is known of the file.

    ``standard_types`` are the operators of ONNX itself; a node without a domain that is none of them is then listed
    too. Raises ExportError where the file cannot be read, or no runtime could read it.
    """
    found = OnnxFile(path)
    with mapped(path) as content:
        wire = Wire(content)
        try:
            _Reader(wire, found, standard_types).read()
        except WireError as error:
            raise ExportError(
                f"{path}: this is not an ONNX model, or a damaged one ({error}). Export it again, or copy it again: its"
                f" size here is {len(content):,} bytes."
            ) from None
    return found


class mapped:  # noqa: N801 (a function to its callers)
    """The content of a file, mapped: what is not looked at is not read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "mmap.mmap":
        if self.path.exists() and not self.path.is_file():
            what = "a folder" if self.path.is_dir() else "no ordinary file"
            raise ExportError(f"{self.path} is {what}. Give the path of an ONNX model.")
        try:
            with open(self.path, "rb") as file:
                self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file cannot be mapped
            raise ExportError(f"{self.path} is empty. Export the model again.") from None
        except OSError as error:
            raise ExportError(
                f"{self.path} cannot be read: {error.strerror}. Give the path of an ONNX model."
            ) from error
        return self.content

    def __exit__(self, *_: object) -> None:
        self.content.close()


@dataclass(frozen=True)
class _Scope:
    """A graph, or the body of a function. ``graphs`` are those it stands in, itself last; ``caller`` counts nodes."""

    span: Span
    place: str
    graphs: tuple[Span, ...]
    caller: Function

    @property
    def is_body(self) -> bool:
        return self.caller.identifier != MAIN and len(self.graphs) == 1


@dataclass
class _Described:
    """A node that is described, while the types of its values are still to be found."""

    operator: Operator
    name: str
    scope: _Scope
    attributes: tuple[Attribute, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class _Reader:
    wire: Wire
    found: OnnxFile
    standard_types: frozenset[bytes] | None
    overridden: set[bytes] = field(default_factory=set)
    formal: set[bytes] = field(default_factory=set)
    harmless: set[bytes] = field(default_factory=set)
    described: list[_Described] = field(default_factory=list)
    has_graph: bool = False

    def read(self) -> None:
        whole = (0, len(self.wire))
        graphs, functions = list[Span](), list[Span]()
        version = ""
        for number, kind, begin, end in self.wire.fields(whole):
            if number == _Model.GRAPH and _is(kind, BYTES, "graph"):
                self.has_graph = True
                graphs.append((begin, end))
            elif number == _Model.FUNCTIONS and _is(kind, BYTES, "functions"):
                functions.append((begin, end))
            elif number == _Model.METADATA and _is(kind, BYTES, "metadata_props"):
                self._metadata((begin, end))
            elif number == _Model.OPSET and _is(kind, BYTES, "opset_import"):
                self._opset((begin, end))
            elif number == _Model.IR_VERSION and _is(kind, VARINT, "ir_version"):
                self.found.ir_version = signed(begin)
            elif number == _Model.PRODUCER and _is(kind, BYTES, "producer_name"):
                self.found.producer = self._text((begin, end), "producer_name")
            elif number == _Model.PRODUCER_VERSION and _is(kind, BYTES, "producer_version"):
                version = self._text((begin, end), "producer_version")
            elif number == _Model.TRAINING and _is(kind, BYTES, "training_info"):
                graphs.extend(self._training((begin, end)))
        if not self.has_graph:
            raise WireError("there is no graph in it")
        self.found.producer = f"{self.found.producer} {version}".strip()
        if len(functions) > MOST_FUNCTIONS:
            raise ExportError(
                f"{self.found.path} has {len(functions):,} functions, and oneop reads at most {MOST_FUNCTIONS:,}. No "
                "exporter writes so many: look at where the file comes from."
            )
        scopes = [self._function(span) for span in functions]
        scopes[:0] = [
            _Scope(span, "graph" if span == graphs[0] else "second graph", (span,), self.found.main) for span in graphs
        ]
        self.overridden = {item.type.encode() for item in self.found.functions if not item.domain}
        self.formal = {name.encode() for item in self.found.functions.values() for name in item.inputs}
        for scope in scopes:
            self._nodes(scope)
        self._types()

    def _metadata(self, span: Span) -> None:
        entry = self._strings(span, {1: "key", 2: "value"}, "metadata_props", lenient=True)
        key, value = entry.get("key", ""), entry.get("value", "")
        if not key.startswith(FINGERPRINT):
            return
        name = key.removeprefix(FINGERPRINT)
        if self.found.fingerprints.get(name, value) != value:
            raise ExportError(
                f"{self.found.path} has two fingerprints of {name}, {self.found.fingerprints[name]} and {value}: it was"
                " put together from exports of two definitions. Export it again from one."
            )
        self.found.fingerprints[name] = value

    def _opset(self, span: Span) -> None:
        domain, version = "", 0
        for number, kind, begin, end in self.wire.fields(span):
            if number == 1 and _is(kind, BYTES, "domain"):
                domain = self._text((begin, end), "domain of opset_import")
            elif number == 2 and _is(kind, VARINT, "version"):
                version = signed(begin)
        self.found.opset_imports[domain] = version

    def _training(self, span: Span) -> Iterator[Span]:
        for number, kind, begin, end in self.wire.fields(span):
            if number in (1, 2) and _is(kind, BYTES, "training_info"):
                yield begin, end

    def _function(self, span: Span) -> _Scope:
        inputs: list[str] = []
        names = {_Function.NAME: "", _Function.DOMAIN: "", _Function.OVERLOAD: ""}
        for number, kind, begin, end in self.wire.fields(span):
            if number in names and _is(kind, BYTES, "function"):
                names[number] = self._text((begin, end), "name of a function")
            elif number == _Function.INPUT and _is(kind, BYTES, "function") and len(inputs) < LONGEST_LIST:
                inputs.append(self._text((begin, end), "input of a function"))
        domain = "" if names[_Function.DOMAIN] == "ai.onnx" else names[_Function.DOMAIN]
        identifier = Identifier(domain, names[_Function.NAME], names[_Function.OVERLOAD])
        if not identifier.type:
            raise WireError("a function without a name")
        if identifier in self.found.functions:
            raise ExportError(
                f"{self.found.path} defines the function {shown(str(identifier))} twice, and runtimes differ in which "
                "they take. Export the model again."
            )
        function = Function(identifier, tuple(inputs))
        self.found.functions[identifier] = function
        return _Scope(span, f"function {identifier}", (span,), function)

    # Nodes. Those of the standard are looked at for the graphs and tensors in their attributes only.

    def _nodes(self, scope: _Scope) -> None:
        """Calls itself for the graphs inside, DEEPEST times at most."""
        node_field = _Function.NODE if scope.is_body else _Graph.NODE
        index = 0
        for number, kind, begin, end in self.wire.fields(scope.span):
            if number == node_field and _is(kind, BYTES, "node"):
                self._node((begin, end), scope, index)
                index += 1
            elif scope.is_body:
                continue
            elif number == _Graph.INITIALIZER and _is(kind, BYTES, "initializer"):
                self._note_name(self._tensor((begin, end)))
            elif number == _Graph.SPARSE and _is(kind, BYTES, "sparse_initializer"):
                self._sparse((begin, end))
            elif number == _Graph.INPUT and _is(kind, BYTES, "input"):
                self._note_name(next((span for number, *span in self.wire.fields((begin, end)) if number == 1), None))
        self.found.node_count += index
        scope.caller.node_count += index

    def _note_name(self, span: Any) -> None:
        """Keeps the names of tensors that are names of a function's inputs as well."""
        if span is not None and span[-1] - span[-2] < LONGEST_NAME:
            raw = self.wire.bytes((span[-2], span[-1]))
            if raw in self.formal:
                self.found.names.add(_decoded(raw, "name of a tensor"))

    def _node(self, span: Span, scope: _Scope, index: int) -> None:
        domain = kind_of_node = b""
        attributes: list[Span] = []
        overload: Span | None = None
        for number, kind, begin, end in self.wire.fields(span):
            if kind != BYTES:
                _is(kind, BYTES, f"field {number} of a node")
            elif number == _Node.TYPE:
                kind_of_node = self._name((begin, end))
            elif number == _Node.DOMAIN:
                domain = self._name((begin, end))
            elif number == _Node.ATTRIBUTE:
                attributes.append((begin, end))
            elif number == _Node.OVERLOAD:
                overload = (begin, end)
            elif number == _Node.OUTPUT and self.formal and not scope.is_body:
                self._note_name((begin, end))
        if not kind_of_node:
            raise WireError(f"node {index} of the {shown(scope.place)} has no type")
        if domain in STANDARD_DOMAINS:
            domain = b""
        if domain or kind_of_node in self.overridden or self._is_unknown(kind_of_node):
            identifier = Identifier(
                _decoded(domain, "domain"),
                _decoded(kind_of_node, "op_type"),
                "" if overload is None else self._text(overload, "overload"),
            )
            self._count(identifier, span, scope, attributes, index)
        for attribute in attributes:
            if not self._is_harmless(attribute):
                self._inside(attribute, scope, span, kind_of_node, index)

    def _is_unknown(self, kind_of_node: bytes) -> bool:
        return self.standard_types is not None and kind_of_node not in self.standard_types

    def _count(self, identifier: Identifier, span: Span, scope: _Scope, attributes: list[Span], index: int) -> None:
        operator = self.found.operators.get(identifier)
        if operator is None:
            if len(self.found.operators) >= MOST_OPERATORS:
                raise ExportError(
                    f"{self.found.path} has more than {MOST_OPERATORS:,} different operators outside the standard. No "
                    "exporter writes so many: look at where the file comes from."
                )
            operator = self.found.operators[identifier] = Operator(identifier)
        operator.count += 1
        scope.caller.calls[identifier] = scope.caller.calls.get(identifier, 0) + 1
        if len(self.described) < MOST_NODES_DESCRIBED:
            name, inputs, outputs = self._names(span)
            described = tuple(self._attribute(attribute) for attribute in attributes[:LONGEST_LIST])
            self.described.append(
                _Described(operator, name or f"number {index}", scope, described, tuple(inputs), tuple(outputs))
            )

    def _names(self, span: Span) -> tuple[str, list[str], list[str]]:
        name, inputs, outputs = "", list[str](), list[str]()
        for number, kind, begin, end in self.wire.fields(span):
            if number == _Node.NAME and _is(kind, BYTES, "name"):
                name = self._text((begin, end), "name of a node")
            elif number in (_Node.INPUT, _Node.OUTPUT) and _is(kind, BYTES, "input"):
                values = inputs if number == _Node.INPUT else outputs
                if len(values) < LONGEST_LIST:
                    values.append(self._text((begin, end), "input or output of a node"))
        return name, inputs, outputs

    def _is_harmless(self, attribute: Span) -> bool:
        """Whether this attribute was looked through before, in another node: most are ``axis=1`` and the like."""
        if attribute[1] - attribute[0] > LONGEST_KEPT:
            return False
        raw = self.wire.bytes(attribute)
        if raw in self.harmless:
            return True
        if any(number in _INNER for number, *_ in self.wire.fields(attribute)):
            return False
        if len(self.harmless) < MOST_KEPT:
            self.harmless.add(raw)
        return True

    def _inside(self, span: Span, scope: _Scope, node: Span, kind_of_node: bytes, index: int) -> None:
        """The graphs in an attribute are to be read; its tensors may lie in files."""
        name: Span | None = None
        for number, kind, begin, end in self.wire.fields(span):
            if number == _Attribute.NAME and _is(kind, BYTES, "name"):
                name = (begin, end)
            elif number in (_Attribute.GRAPH, _Attribute.GRAPHS) and _is(kind, BYTES, "graph"):
                if len(scope.graphs) >= DEEPEST:
                    raise ExportError(
                        f"{self.found.path}: graphs stand inside graphs more than {DEEPEST} deep. Protobuf reads at"
                        " most 100 messages inside each other, so that no runtime loads this file. Export the model"
                        " with fewer nested branches and loops."
                    )
                label = self._text(name, "name of an attribute") if name else "a graph"
                place = f"{scope.place}, {label} of {_decoded(kind_of_node, 'op_type')} {self._label(node, index)}"
                graphs = (*scope.graphs, (begin, end))
                self._nodes(_Scope((begin, end), place, graphs, scope.caller))
            elif number in (_Attribute.TENSOR, _Attribute.TENSORS) and _is(kind, BYTES, "tensor"):
                self._tensor((begin, end))
            elif number in (_Attribute.SPARSE, _Attribute.SPARSES) and _is(kind, BYTES, "sparse_tensor"):
                self._sparse((begin, end))

    def _label(self, node: Span, index: int) -> str:
        for number, kind, begin, end in self.wire.fields(node):
            if number == _Node.NAME and kind == BYTES and end > begin:
                return repr(self._text((begin, end), "name of a node"))
        return f"number {index}"

    # Attributes.

    def _attribute(self, span: Span) -> Attribute:
        name, stated, reference = "", 0, ""
        values: dict[str, list[Any]] = {}
        counts: dict[str, int] = {}
        for number, kind, begin, end in self.wire.fields(span):
            if number == _Attribute.NAME and _is(kind, BYTES, "name"):
                name = self._text((begin, end), "name of an attribute")
            elif number == _Attribute.TYPE and _is(kind, VARINT, "type"):
                stated = begin
            elif number == _Attribute.REFERENCE and _is(kind, BYTES, "ref_attr_name"):
                reference = self._text((begin, end), "ref_attr_name")
            elif (what := _CONTENTS.get(number)) is not None:
                for value in self._content(what, kind, (begin, end)):
                    counts[what] = counts.get(what, 0) + 1
                    if counts[what] <= LONGEST_LIST:
                        values.setdefault(what, []).append(value)
        if reference:
            return Attribute(name, _KINDS.get(stated, "unknown"), f"the function's attribute {reference}")
        what = _KINDS.get(stated) or next(iter(values), "unknown")
        found = values.get(what, [])
        if what in _LISTS:
            return Attribute(name, what, found, counts.get(what, 0))
        return Attribute(name, what, found[-1] if found else _EMPTY.get(what))

    def _content(self, what: str, kind: int, span: Span) -> Iterator[Any]:
        begin, end = span
        match what:
            case "float" | "floats" if kind == FIXED32:
                yield _shortest(struct.unpack("<f", self.wire.bytes(span))[0])
            case "floats" if kind == BYTES:
                yield from self._floats(span)
            case "int" | "ints" if kind == VARINT:
                yield signed(begin)
            case "ints" if kind == BYTES:
                yield from map(signed, self.wire.varints(span))
            case "string" | "strings" if kind == BYTES:
                # Any bytes may stand here: ONNX does not ask for UTF-8.
                yield self.wire.bytes((begin, min(end, begin + LONGEST_NAME))).decode("utf-8", "backslashreplace")
            case "tensor" | "tensors" if kind == BYTES:
                dtype, dims, _ = self._tensor_type(span)
                yield _tensor_text(dtype, dims)
            case "graph" | "graphs" if kind == BYTES:
                yield "a graph"
            case "sparse tensor" | "sparse tensors" | "type" | "types" if kind == BYTES:
                yield what.removesuffix("s")
            case _:
                raise WireError(f"an attribute whose {what} has wire type {kind}")

    def _floats(self, span: Span) -> Iterator[float]:
        begin, end = span
        if (end - begin) % 4:
            raise WireError("a list of floats that ends within one")
        for number, at in enumerate(range(begin, end, 4)):
            yield _shortest(struct.unpack("<f", self.wire.bytes((at, at + 4)))[0]) if number < LONGEST_LIST else 0.0

    # Tensors: their type, and the file that their numbers are in.

    def _tensor(self, span: Span) -> Span | None:
        """Where its name stands."""
        is_external = False
        entries: list[Span] = []
        name: Span | None = None
        for number, kind, begin, end in self.wire.fields(span):
            if number == _Tensor.EXTERNAL and _is(kind, BYTES, "external_data"):
                entries.append((begin, end))
            elif number == _Tensor.LOCATION and _is(kind, VARINT, "data_location"):
                is_external = begin == 1
            elif number == _Tensor.NAME and _is(kind, BYTES, "name"):
                name = (begin, end)
        if is_external:
            self._external(entries, name)
        return name

    def _external(self, entries: list[Span], name: Span | None) -> None:
        words: dict[str, str] = {}
        for entry in entries:
            pair = self._strings(entry, {1: "key", 2: "value"}, "external_data")
            words[pair.get("key", "")] = pair.get("value", "")
        tensor = shown(self._text(name, "name of a tensor")) if name else "without a name"
        location = words.get("location", "")
        if not location:
            raise ExportError(
                f"{self.found.path}: the numbers of tensor {tensor} are in another file, which is not named. Export "
                "the model again."
            )
        if location not in self.found.external and len(self.found.external) >= MOST_FILES:
            raise ExportError(
                f"{self.found.path} names more than {MOST_FILES:,} files with weights. Save it again with one file for"
                " all of them."
            )
        expected = self._extent(words, tensor)
        self.found.external[location] = max(self.found.external.get(location, 0), expected)

    def _extent(self, words: dict[str, str], tensor: str) -> int:
        """How many bytes the file has to have for this tensor, as far as the model says."""
        total = 0
        for word in ("offset", "length"):
            text = words.get(word) or "0"
            if not text.isascii() or not text.isdigit() or len(text) > 20:
                raise ExportError(
                    f"{self.found.path}: the external data of tensor {tensor} has the {word} {shown(text)!r}, which is "
                    "no number of bytes. Export the model again."
                )
            total += int(text)
        return total

    def _sparse(self, span: Span) -> None:
        for number, kind, begin, end in self.wire.fields(span):
            if number in (1, 2) and _is(kind, BYTES, "sparse tensor"):
                self._tensor((begin, end))

    def _tensor_type(self, span: Span) -> tuple[int, list[int], bytes]:
        dtype, dims, name = 0, list[int](), b""
        for number, kind, begin, end in self.wire.fields(span):
            if number == _Tensor.DIMS:
                sizes = [begin] if kind == VARINT else self.wire.varints((begin, end)) if kind == BYTES else []
                dims.extend(signed(size) for size in sizes)
                if len(dims) > LONGEST_LIST:
                    raise WireError("a tensor of more than 100 dimensions")
            elif number == _Tensor.TYPE and _is(kind, VARINT, "data_type"):
                dtype = begin
            elif number == _Tensor.NAME and _is(kind, BYTES, "name"):
                name = self._name((begin, end))
        return dtype, dims, name

    # Types of values: looked for in the graphs around the nodes that are described, once a graph.

    def _types(self) -> None:
        wanted: dict[Span, set[bytes]] = {}
        for item in self.described:
            names = {name.encode() for name in (*item.inputs, *item.outputs) if name}
            for graph in item.scope.graphs:
                wanted.setdefault(graph, set()).update(names)
        bodies = {item.scope.graphs[0] for item in self.described if item.scope.caller.identifier != MAIN}
        stated = {span: self._values(span, names, span in bodies) for span, names in wanted.items()}
        for item in self.described:
            chain = [stated[graph] for graph in reversed(item.scope.graphs)]
            item.operator.nodes.append(
                Node(
                    item.name,
                    item.scope.place,
                    item.attributes,
                    tuple(_typed(name, chain) for name in item.inputs),
                    tuple(_typed(name, chain) for name in item.outputs),
                )
            )

    def _values(self, graph: Span, wanted: set[bytes], is_function: bool) -> dict[str, str]:
        infos = (_Function.VALUE_INFO,) if is_function else (_Graph.INPUT, _Graph.OUTPUT, _Graph.VALUE_INFO)
        found: dict[str, str] = {}
        for number, kind, begin, end in self.wire.fields(graph):
            if number in infos and kind == BYTES:
                name, text = self._value_info((begin, end), wanted)
                if name is not None and text is not None:
                    found[name] = text
            elif not is_function and number == _Graph.INITIALIZER and kind == BYTES:
                dtype, dims, raw = self._tensor_type((begin, end))
                if raw in wanted:
                    found.setdefault(_decoded(raw, "name of a tensor"), _tensor_text(dtype, dims))
        return found

    def _value_info(self, span: Span, wanted: set[bytes]) -> tuple[str | None, str | None]:
        name, type_span = b"", None
        for number, kind, begin, end in self.wire.fields(span):
            if number == 1 and _is(kind, BYTES, "name"):
                name = self._name((begin, end))
            elif number == 2 and _is(kind, BYTES, "type"):
                type_span = (begin, end)
        if name not in wanted or type_span is None:
            return None, None
        return _decoded(name, "name of a value"), self._type(type_span)

    def _type(self, span: Span) -> str | None:
        """Sequences and optionals are followed a few levels down, which is more than ONNX has."""
        head, tail = "", ""
        for _ in range(4):
            content = None
            for number, kind, begin, end in self.wire.fields(span):
                if kind == BYTES and number in (1, 4, 5, 8, 9):
                    content = (number, (begin, end))
            if content is None:
                return None
            number, inner = content
            if number in (1, 8):
                return f"{head}{'sparse ' if number == 8 else ''}{self._tensor_type_text(inner)}{tail}"
            if number == 5:
                return f"{head}map{tail}"
            head, tail = f"{head}{'sequence' if number == 4 else 'optional'}(", f"){tail}"
            span = next(
                ((at, stop) for n, kind, at, stop in self.wire.fields(inner) if n == 1 and kind == BYTES), inner
            )
        return None

    def _tensor_type_text(self, span: Span) -> str:
        dtype, dims = 0, None
        for number, kind, begin, end in self.wire.fields(span):
            if number == 1 and _is(kind, VARINT, "elem_type"):
                dtype = begin
            elif number == 2 and _is(kind, BYTES, "shape"):
                dims = self._dims((begin, end))
        return _tensor_text(dtype, dims)

    def _dims(self, span: Span) -> list[int | str]:
        found: list[int | str] = []
        for number, kind, begin, end in self.wire.fields(span):
            if number != 1 or kind != BYTES:
                continue
            size: int | str = "?"
            for part, part_kind, first, last in self.wire.fields((begin, end)):
                if part == 1 and part_kind == VARINT:
                    size = signed(first)
                elif part == 2 and part_kind == BYTES:
                    size = self._text((first, last), "name of a dimension") or "?"
            found.append(size)
            if len(found) > LONGEST_LIST:
                raise WireError("a tensor of more than 100 dimensions")
        return found

    # Text.

    def _strings(self, span: Span, names: dict[int, str], what: str, lenient: bool = False) -> dict[str, str]:
        """The strings of a message by name; ``lenient`` takes those that are cut, or no UTF-8, as far as they go."""
        found: dict[str, str] = {}
        for number, kind, begin, end in self.wire.fields(span):
            if number in names and _is(kind, BYTES, what):
                if lenient:
                    raw = self.wire.bytes((begin, min(end, begin + LONGEST_NAME)))
                    found[names[number]] = raw.decode("utf-8", "backslashreplace")
                else:
                    found[names[number]] = self._text((begin, end), what)
        return found

    def _text(self, span: Span, what: str) -> str:
        return _decoded(self._name(span), what)

    def _name(self, span: Span) -> bytes:
        if span[1] - span[0] > LONGEST_NAME:
            raise WireError(f"a name of {span[1] - span[0]:,} bytes")
        return self.wire.bytes(span)


_CONTENTS = {
    _Attribute.FLOAT: "float", _Attribute.INT: "int", _Attribute.STRING: "string", _Attribute.TENSOR: "tensor",
    _Attribute.GRAPH: "graph", _Attribute.FLOATS: "floats", _Attribute.INTS: "ints", _Attribute.STRINGS: "strings",
    _Attribute.TENSORS: "tensors", _Attribute.GRAPHS: "graphs", _Attribute.SPARSE: "sparse tensor",
    _Attribute.SPARSES: "sparse tensors", _Attribute.TYPE_PROTO: "type", _Attribute.TYPE_PROTOS: "types",
}  # fmt: skip
_INNER = (
    *(_Attribute.GRAPH, _Attribute.GRAPHS, _Attribute.TENSOR, _Attribute.TENSORS),
    *(_Attribute.SPARSE, _Attribute.SPARSES),
)
_LISTS = ("floats", "ints", "strings", "tensors", "graphs", "sparse tensors", "types")
_EMPTY: dict[str, Any] = {"float": 0.0, "int": 0, "string": ""}
"""What protobuf leaves out."""


def shown(text: str, longest: int = 200) -> str:
    """A text of the file, safe to print: no control characters, no end of line, not longer than a line."""
    clean = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:longest])
    return clean + ("..." if len(text) > longest else "")


def _is(kind: int, wanted: int, what: str) -> bool:
    """True; a field of a wrong wire type is damage, not a field that is not known."""
    if kind != wanted:
        raise WireError(f"{what} has wire type {kind}")
    return True


def _decoded(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise WireError(f"{what}: {raw[:40]!r} is not UTF-8") from None


def _typed(name: str, chain: list[dict[str, str]]) -> Value:
    return Value(name, next((found[name] for found in chain if name in found), None) if name else None)


def _tensor_text(dtype: int, dims: "list[int] | list[int | str] | None") -> str:
    name = _TYPES.get(dtype, f"type {dtype}")
    return name if dims is None else f"{name}[{', '.join(map(str, dims))}]"


def _shortest(value: float) -> float:
    """The double that prints as a float of 32 bits does: 0.1, not 0.10000000149011612."""
    for digits in range(6, 10):
        near = float(f"{value:.{digits}g}")
        try:
            if struct.pack("<f", near) == struct.pack("<f", value):
                return near
        except OverflowError:  # rounded up beyond the largest float
            continue
    return value
