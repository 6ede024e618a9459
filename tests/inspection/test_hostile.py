"""Damaged, huge and hostile files: a result or a clear error, in bounded time and memory, and never a crash."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from inspection import files
from inspection.files import function, graph, message, model, node, saved, value, varint
from inspection.test_rewriting import with_weights
from onnx import TensorProto, helper
from typer.testing import CliRunner

from oneop.cli import app
from oneop.definition.signature import camel_case
from oneop.errors import ExportError, OneopError
from oneop.inspection import checking, examining, reading, rewriting, wire
from oneop.inspection.examining import inspect

NODE = message(4, b"Op") + message(7, b"d")
IMPORT = message(8, message(1, b"d"))


def refused(path: Path) -> str:
    with pytest.raises(ExportError) as caught:
        inspect(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert all(character.isprintable() for character in text)
    return text.removeprefix(str(path))


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", " is empty. Export the model again."),
        (b"\x08\x07", "(there is no graph in it)"),
        (b"PK\x03\x04" + bytes(100), "this is not an ONNX model, or a damaged one"),
        (b"<!DOCTYPE html>", "this is not an ONNX model, or a damaged one"),
        (b"\x3a\x05\x0a\x01", "(a field ends behind its message)"),
        (message(7, b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "(a field ends behind its message)"),
        (message(7, b"\x0a" + b"\xff" * 11), "(a number of more than 64 bits)"),
        (message(7, b"\x0b\x0c"), "(a field of wire type 3)"),
        (message(7, b"\x0f\x0c"), "(a field of wire type 7)"),
        (message(7, b"\x02\x00"), "(a field with the number 0)"),
        (b"\x38\x01", "(graph has wire type 0)"),
        (message(7, b"\x08\x01"), "(node has wire type 0)"),
        (message(7, message(1, b"\x20\x01")), "(field 4 of a node has wire type 0)"),
        (message(7, message(1, b"")), "(node 0 of the graph has no type)"),
        (message(7, message(1, message(4, b"\xff\xfe") + message(7, b"d"))), "(op_type: b'\\xff\\xfe' is not UTF-8)"),
        (message(7, message(1, NODE + message(1, b"\xff"))), "(input or output of a node: b'\\xff' is not UTF-8)"),
        (message(7, message(1, message(4, b"x" * 20_000) + message(7, b"d"))), "(a name of 20,000 bytes)"),
        (message(7, b"") + message(25, b""), "(a function without a name)"),
        (message(7, message(1, NODE + message(5, message(7, b"\0\0\0")))), "(a list of floats that ends within one)"),
        (message(7, message(1, NODE + message(5, b"\x15\0\0"))), "(a field ends behind its message)"),
        (message(7, message(1, NODE + message(5, b"\x10\x01"))), "(an attribute whose float has wire type 0)"),
    ],
)
def test_damage(tmp_path: Path, content: bytes, said: str) -> None:
    assert said in refused(written(tmp_path / "m.onnx", content))


def test_every_truncation(exported: Path, tmp_path: Path) -> None:
    """A file that lost its end has no graph, or one that is cut, or a function that is cut, or lost functions."""
    content = exported.read_bytes()
    path = tmp_path / "m.onnx"
    for size in range(1, len(content), 97):
        path.write_bytes(content[:size])
        try:
            inspect(path)
        except ExportError as error:
            assert "this is not an ONNX model, or a damaged one" in str(error)  # noqa: PT017


def test_names_are_printed_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal obeys what is in a name, and rich obeys brackets."""
    monkeypatch.setenv("COLUMNS", "300")
    evil = node("Op", name="\x1b]0;title\x07\x1b[31m[bold]\u202e\n", domain="d\x1b[2J")
    path = saved(tmp_path / "m.onnx", model(graph([evil]), ["d\x1b[2J"]))
    for option in ([], ["--json"]):
        done = CliRunner().invoke(app, ["inspect", str(path), *option])
        assert done.exit_code == 0
        assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout)
        assert option or "d\\x1b[2J::Op \\x1b]0;title\\x07\\x1b[31m[bold]\\u202e\\n" in done.stdout


def nested(depth: int) -> bytes:
    """If in If in If, as bytes: protobuf itself does not write more than a hundred messages inside each other."""
    inner = message(1, NODE)
    for _ in range(depth):
        attribute = message(1, b"then_branch") + message(6, inner) + b"\xa0\x01\x05"
        inner = message(1, message(4, b"If") + message(5, attribute))
    return message(7, inner)


@pytest.mark.parametrize("depth", [reading.DEEPEST, 5_000])
def test_graphs_inside_graphs(tmp_path: Path, depth: int) -> None:
    said = refused(written(tmp_path / "m.onnx", nested(depth)))
    assert (
        said
        == ": graphs stand inside graphs more than 33 deep. Protobuf reads at most 100 messages inside each other, so"
        " that no runtime loads this file. Export the model with fewer nested branches and loops."
    )


def test_as_deep_as_protobuf_reads(tmp_path: Path) -> None:
    assert inspect(written(tmp_path / "m.onnx", nested(reading.DEEPEST - 1))).operators[0].operator.count == 1


def test_types_inside_types(tmp_path: Path) -> None:
    inner = b""
    for _ in range(5_000):
        inner = message(4, message(1, inner))
    path = written(
        tmp_path / "m.onnx",
        message(7, message(1, NODE + message(1, b"x")) + message(11, message(1, b"x") + message(2, inner))),
    )
    assert inspect(path).operators[0].operator.nodes[0].inputs[0].type is None


def test_functions_in_a_circle(tmp_path: Path) -> None:
    for size, circle in ((1, "d::F0 -> d::F0"), (2, "d::F0 -> d::F1 -> d::F0")):
        functions = [function(f"F{i}", [node(f"F{(i + 1) % size}", ["a"], ["b"])]) for i in range(size)]
        path = saved(tmp_path / "m.onnx", model(graph([node("F0")]), functions=functions))
        for refuse in (
            refused,
            *(lambda path, change=change: _refused_by(change, path) for change in (rewriting.strip, rewriting.inline)),
        ):
            assert refuse(path).startswith(": the functions in it call each other in a circle, d::F")
        assert circle in refused(path)


def _refused_by(change: Callable[[Path, Path], object], path: Path) -> str:
    with pytest.raises(ExportError) as caught:
        change(path, path.with_name("new.onnx"))
    assert not path.with_name("new.onnx").exists()
    return str(caught.value).removeprefix(str(path))


def test_a_long_circle_through_a_branch(tmp_path: Path) -> None:
    functions = [function(f"F{i}", [node(f"F{i + 1}", ["a"], ["b"])]) for i in range(2_000)]
    branch = graph([node("F0", ["a"], ["t"])], inputs=[], outputs=[value("t")])
    functions.append(function("F2000", [helper.make_node("If", ["a"], ["b"], then_branch=branch, else_branch=branch)]))
    said = refused(saved(tmp_path / "m.onnx", model(graph([]), functions=functions)))
    assert "... (2001 functions), so that no runtime can take them apart. Export the model again." in said


def test_a_function_in_the_place_of_an_operator_of_onnx(tmp_path: Path) -> None:
    body = [helper.make_node("Relu", ["a"], ["b"])]
    relu = function("Relu", body, domain="")
    path = saved(tmp_path / "m.onnx", model(graph([helper.make_node("Relu", ["x"], ["y"])]), functions=[relu]))
    assert "in a circle, Relu -> Relu" in refused(path)


def test_functions_that_double(tmp_path: Path) -> None:
    """Forty functions of two calls each: a million million nodes."""
    functions = [
        function(f"F{i}", [node(f"F{i + 1}", ["a"], ["t"]), node(f"F{i + 1}", ["t"], ["b"])]) for i in range(40)
    ]
    functions.append(function("F40", [helper.make_node("Neg", ["a"], ["b"])]))
    path = saved(tmp_path / "m.onnx", model(graph([node("F0")]), functions=functions))
    said = (
        ": its functions call each other so often that they stand for more than 10,000,000 nodes, and a runtime that "
    )
    assert refused(path).startswith(said)
    assert _refused_by(rewriting.inline, path).startswith(said)


def test_the_same_name_twice(tmp_path: Path) -> None:
    body = [helper.make_node("Neg", ["a"], ["b"])]
    made = model(graph([node("F")]), functions=[function("F", body), function("F", body)])
    assert (
        refused(saved(tmp_path / "m.onnx", made))
        == " defines the function d::F twice, and runtimes differ in which they take. Export the model again."
    )
    made = model(graph([node("F")]))
    for text in ("1", "2"):
        made.metadata_props.add(key="oneop.fingerprint.d::f", value=text)
    assert "has two fingerprints of d::f, 1 and 2: it was put together" in refused(saved(tmp_path / "m.onnx", made))


# Weights in other files.


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("/etc/passwd", "is an absolute path"),
        ("C:\\secret", "is an absolute path"),
        ("\\\\server\\share", "is an absolute path"),
        ("../m.bin", "leads out of its folder"),
        ("data/../../m.bin", "leads out of its folder"),
        ("..\\m.bin", "leads out of its folder"),
        ("w\0.bin", "is no path"),
        ("out.bin", "outside of its folder"),
        ("folder/w.bin", "outside of its folder"),
        ("fifo", "is no ordinary file"),
        (".", "is no ordinary file"),
        ("", "the numbers of tensor w are in another file, which is not named"),
    ],
)
def test_weights_that_are_not_the_model_s(tmp_path: Path, location: str, said: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(12))
    (home / "out.bin").symlink_to("../w.bin")
    (home / "folder").symlink_to(tmp_path)
    os.mkfifo(home / "fifo")
    path = with_weights(home / "m.onnx", location)
    assert said in refused(path)
    assert said in _refused_by(rewriting.strip, path)


def test_weights_in_an_attribute_are_looked_at_too(tmp_path: Path) -> None:
    tensor = TensorProto(name="t", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    for made in (helper.make_node("Constant", [], ["y"], value=tensor), node("Op", tensors=[tensor])):
        assert "'/etc/passwd', which is an absolute path" in refused(saved(tmp_path / "m.onnx", model(graph([made]))))


@pytest.mark.parametrize("text", ["-1", "1e3", "\u0663", "9" * 30, " 1"])
def test_places_that_are_no_numbers(tmp_path: Path, text: str) -> None:
    said = refused(with_weights(tmp_path / "m.onnx", offset=text))
    assert "the external data of tensor w has the offset" in said
    assert "which is no number of bytes. Export the model again." in said


def test_a_store_of_linked_files(tmp_path: Path) -> None:
    """As download caches have them: model and weights are links into one folder."""
    for name in ("snapshot", "blobs"):
        (tmp_path / name).mkdir()
    with_weights(tmp_path / "blobs" / "1")
    (tmp_path / "blobs" / "2").write_bytes(bytes(12))
    (tmp_path / "snapshot" / "m.onnx").symlink_to("../blobs/1")
    (tmp_path / "snapshot" / "w.bin").symlink_to("../blobs/2")
    assert inspect(tmp_path / "snapshot" / "m.onnx").notes == ()


def test_weights_that_are_missing_or_short(tmp_path: Path) -> None:
    path = with_weights(tmp_path / "m.onnx", size=12)
    assert inspect(path).notes == ("w.bin, with weights, cannot be read beside the model: No such file or directory.",)
    (tmp_path / "w.bin").write_bytes(bytes(11))
    assert inspect(path).notes == (
        (
            "w.bin, with weights, has 11 bytes, and the model expects 12: it belongs to another model, or was not"
            " copied whole."
        ),
    )


# Size. Each in a process of its own, whose memory and time end soon after what the imports took.

_LIMITED = """
import resource, sys
from pathlib import Path
from oneop.inspection import examining, rewriting
from oneop.errors import OneopError
import onnx
import oneop.targets.onnx.inlining, oneop.targets.onnx.adding
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[3]) * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[4]), int(sys.argv[4])))
try:
    if sys.argv[1] == "inspect":
        found = examining.inspect(sys.argv[2])
        print(found.file.node_count, [item.operator.count for item in found.operators], found.notes)
    else:
        print(getattr(rewriting, sys.argv[1])(sys.argv[2], sys.argv[2] + ".new"))
except OneopError as error:
    print("refused", error)
"""


def limited(path: Path, what: str = "inspect", megabytes: int = 200, seconds: int = 60) -> str:
    if not sys.platform.startswith("linux"):
        pytest.skip("limits of a process's memory are tested on Linux")
    arguments = [what, str(path), str(megabytes), str(seconds)]
    done = subprocess.run([sys.executable, "-c", _LIMITED, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_weights_of_gigabytes_are_not_read(tmp_path: Path) -> None:
    """Eight of them beside the model (a sparse file), and three of them in the model itself."""
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(2**33)
    path = with_weights(tmp_path / "beside.onnx", size=2**33)
    size = 3 * 2**30
    tensor = message(8, b"w") + b"\x10\x01" + varint(9 << 3 | 2) + varint(size)  # raw_data, to be filled with nothing
    length = len(tensor) + size
    head = message(1, NODE) + varint(5 << 3 | 2) + varint(length)
    inside = tmp_path / "inside.onnx"
    with open(inside, "wb") as file:
        file.write(varint(7 << 3 | 2) + varint(len(head) + length) + head + tensor)
        file.truncate(file.tell() + size)
        file.seek(0, os.SEEK_END)
        file.write(IMPORT)
    code = _LIMITED.replace(
        "found = examining.inspect(sys.argv[2])",
        "examining.inspect(sys.argv[2] + '/beside.onnx')\n        found = examining.inspect(sys.argv[2] +"
        " '/inside.onnx')",
    )
    # Mapped, three gigabytes of addresses are taken, and next to no memory.
    arguments = ["inspect", str(tmp_path), str(size // 2**20 + 200), "30"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.stdout == "1 [1] ()\n", done.stderr[-2000:]
    assert path.exists()


def test_hundreds_of_thousands_of_nodes(tmp_path: Path) -> None:
    made = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", strides=[1, 1], pads=[0, 0, 0, 0])
    many = message(1, made.SerializeToString()) * 50_000 + message(1, node("Op").SerializeToString()) * 50_000
    path = written(tmp_path / "m.onnx", message(7, many) + message(8, message(1, b"d")))
    assert limited(path) == "100000 [50000] ('2,000 of 50,000 nodes are described.',)\n"


def test_thousands_of_functions_that_call_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In as many steps as there are functions: not each of them for each of them."""
    steps = []
    called = examining._called
    monkeypatch.setattr(examining, "_called", lambda file: steps.append(1) or called(file))
    monkeypatch.setattr(examining, "camel_case", lambda base: steps.append(1) or camel_case(base))
    chain = [function(f"F{i}", [node(f"F{i + 1}")]) for i in range(200)]
    made = model(graph([node("F0")]), functions=[*chain, function("F200", [node("Relu", domain="")])])
    for i in range(200):
        made.metadata_props.add(key=f"oneop.fingerprint.d::f{i}", value="0" * 16)
    found = inspect(saved(tmp_path / "m.onnx", made))
    assert {item.operator.identifier.type: item.names for item in found.operators}["F7"] == ("d::f7",)
    assert 200 <= len(steps) < 210


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            message(7, b"") + b"".join(message(25, message(1, b"f%d" % i)) for i in range(100_001)),
            "has 100,001 functions",
        ),
        (
            message(7, b"".join(message(1, message(4, b"Op%d" % i) + message(7, b"d")) for i in range(10_001))),
            "has more than 10,000 different operators outside the standard",
        ),
    ],
)
def test_more_than_anybody_writes(tmp_path: Path, content: bytes, said: str) -> None:
    assert said in refused(written(tmp_path / "m.onnx", content))


def test_more_fields_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_FIELDS", 1_000)
    assert "(more than 1,000 fields)" in refused(written(tmp_path / "m.onnx", message(7, message(1, NODE) * 500)))


def test_functions_that_inline_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MOST_INLINED", 3)
    body = [helper.make_node("Neg", ["a"], ["t"]), helper.make_node("Neg", ["t"], ["b"])]
    path = saved(tmp_path / "m.onnx", model(graph([node("F", outputs=["t"])]), functions=[function("F", body)]))
    inspect(path)
    path = saved(path, model(graph([node("F", outputs=["t"]), node("F", ["t"])]), functions=[function("F", body)]))
    assert "stand for more than 3 nodes" in refused(path)


# Anything at all.


@pytest.fixture(scope="module")
def originals(exported: Path, bare: Path, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Files of different make, short ones: a change then hits something."""
    folder = tmp_path_factory.mktemp("originals")
    inner = graph([node("F", ["x"], ["z"])], inputs=[], outputs=[value("z")])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    body = [node("G", ["a"], ["t"], k=[1, 2, 3]), helper.make_node("Neg", ["t"], ["b"])]
    small = model(
        graph(
            [branch, node("Op", s="text", fs=[1.0])], inputs=[value("x", ["n", 2]), value("c", [], TensorProto.BOOL)]
        ),
        functions=[function("F", body), function("G", [helper.make_node("Abs", ["a"], ["b"])], attributes=["k"])],
    )
    return [
        exported.read_bytes(),
        bare.read_bytes(),
        small.SerializeToString(),
        with_weights(folder / "w.onnx").read_bytes(),
    ]


def mutated(content: bytes, seed: int, count: int) -> bytes:
    """Bytes changed, bits turned, pieces taken out, doubled, moved, and numbers set to the edges of their range."""
    chance, found = random.Random(seed), bytearray(content)
    for _ in range(count):
        at, size = chance.randrange(len(found) + 1), chance.choice([1, 1, 2, 4, 16, 100])
        match chance.randrange(7):
            case 0:
                found[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                found[at : at + 1] = bytes([byte ^ 1 << chance.randrange(8) for byte in found[at : at + 1]])
            case 2:
                del found[at : at + size]
            case 3:
                found[at:at] = found[at : at + size]
            case 4:
                other = chance.randrange(len(found) + 1)
                found[other:other] = found[at : at + size]
            case 5:
                found[at : at + 1] = chance.choice(
                    [b"\xff" * 9 + b"\x01", b"\x00", b"\x7f", b"\x80\x00", b"\xff\xff\xff\xff\x0f"]
                )
            case 6 if at > 10:
                del found[at:]
    return bytes(found)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(which=st.integers(0, 3), seed=st.integers(0, 2**32), count=st.integers(1, 12))
@example(which=2, seed=0, count=0)
@example(which=0, seed=12490, count=1)  # an attribute of another type, in a node that is written
@example(which=0, seed=6919, count=2)  # the same, in a constant that is settled
def test_changed_files(originals: list[bytes], tmp_path: Path, which: int, seed: int, count: int) -> None:
    """A result, or an error of ours, from each of the four; a file that was written can be read."""
    path, new = tmp_path / "m.onnx", tmp_path / "new.onnx"
    path.write_bytes(mutated(originals[which], seed, count))
    try:
        inspect(path)
    except OneopError:
        return
    changes: list[Callable[[Path, Path], object]] = [rewriting.strip, rewriting.inline]
    if which == 1 and seed % 8 == 0:  # each traces the references anew
        changes.append(lambda old, to: rewriting.add_functions(old, [files.OPERATORS], to))
    for change in changes:
        new.unlink(missing_ok=True)
        try:
            change(path, new)
        except OneopError:
            assert not new.exists()
        else:
            reading.read(new)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path / "m.onnx", message(7, content))
    try:
        inspect(path)
    except OneopError as error:
        assert str(error).startswith(str(path))  # noqa: PT017


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(which=st.integers(0, 3), seed=st.integers(0, 2**32))
def test_what_protobuf_reads_is_read_the_same(originals: list[bytes], tmp_path: Path, which: int, seed: int) -> None:
    """The reader is our own; where both it and protobuf read a changed file, they agree on its nodes."""
    path = written(tmp_path / "m.onnx", mutated(originals[which], seed, 2))
    try:
        proto = onnx.load(path, load_external_data=False)
        found = reading.read(path)
    except Exception:
        return

    def count(nodes: list[onnx.NodeProto]) -> int:
        inner = [g for item in nodes for attribute in item.attribute for g in (attribute.g, *attribute.graphs)]
        return len(nodes) + sum(count(list(g.node)) for g in inner)

    expected = count(list(proto.graph.node)) + sum(count(list(item.node)) for item in proto.functions)
    assert found.node_count == expected
    np.testing.assert_equal(
        sorted(name[:2] for name in found.functions),
        sorted((f.domain.replace("ai.onnx", ""), f.name) for f in proto.functions),
    )
