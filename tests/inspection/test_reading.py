"""What is read from a file: every node outside the standard, where it stands, its attributes and types."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from inspection import files
from inspection.files import graph, model, node, saved, value
from onnx import TensorProto, helper, numpy_helper

from oneop.inspection import examining, reading
from oneop.inspection.facts import Identifier, OnnxFile


def read(path: Path) -> OnnxFile:
    return reading.read(path, examining.standard_types())


def test_an_exported_file(exported: Path) -> None:
    file = read(exported)
    proto = onnx.load(exported)
    assert file.producer.startswith("pytorch")
    assert file.opset_imports == {entry.domain: entry.version for entry in proto.opset_import}
    assert set(file.fingerprints) == {"insp::affine", "insp::twice"}
    assert set(file.functions) == {Identifier("insp", "Affine"), Identifier("insp", "Twice")}
    affine, twice = (file.operators[Identifier("insp", name)] for name in ("Affine", "Twice"))
    assert [item.place for item in affine.nodes] == ["graph", "graph", "graph", "function insp::Twice"]
    assert (affine.count, twice.count) == (4, 1)
    first, second = affine.nodes[:2]
    assert {item.name: item.value for item in second.attributes} == {"alpha": 0.5, "mode": "other"}
    assert [(item.name, item.type) for item in second.inputs] == [
        (first.outputs[0].name, "float32[rows, 3]"),
        ("shift", "float32[3]"),
    ]
    assert [item.type for item in second.outputs] == ["float32[rows, 3]"]
    assert first.inputs[1].name == ""


def test_the_number_of_nodes_is_onnx_s(exported: Path) -> None:
    def count(items: Any) -> int:
        inner = [attribute.g for item in items for attribute in item.attribute if attribute.HasField("g")]
        return len(items) + sum(count(found.node) for found in inner)

    proto = onnx.load(exported)
    assert read(exported).node_count == count(proto.graph.node) + sum(count(f.node) for f in proto.functions)


def test_every_kind_of_attribute(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.ones((2, 3), np.int64), "t")
    given = {
        "f": 0.1,
        "i": -5,
        "s": "text",
        "t": tensor,
        "g": graph([node("Inner")]),
        "fs": [0.1, 2.0, float("inf")],
        "is": [1, -(2**63), 2**63 - 1],
        "ss": ["a", "b"],
        "ts": [tensor, tensor],
        "gs": [graph([node("Inner")]), graph([])],
    }
    made = node("Op", **given)
    made.attribute.append(helper.make_attribute("bytes", b"\xff\x00"))
    file = read(saved(tmp_path / "m.onnx", model(graph([made]))))
    found = {
        item.name: (item.kind, item.value, item.count)
        for item in file.operators[Identifier("d", "Op")].nodes[0].attributes
    }
    assert found == {
        "f": ("float", 0.1, None),
        "i": ("int", -5, None),
        "s": ("string", "text", None),
        "t": ("tensor", "int64[2, 3]", None),
        "g": ("graph", "a graph", None),
        "fs": ("floats", [0.1, 2.0, float("inf")], 3),
        "is": ("ints", [1, -(2**63), 2**63 - 1], 3),
        "ss": ("strings", ["a", "b"], 2),
        "ts": ("tensors", ["int64[2, 3]"] * 2, 2),
        "gs": ("graphs", ["a graph"] * 2, 2),
        "bytes": ("string", "\\xff\x00", None),
    }
    assert file.operators[Identifier("d", "Inner")].count == 2


def test_empty_lists_and_zeros_that_protobuf_leaves_out(tmp_path: Path) -> None:
    made = node("Op")
    for name, kind in (("fs", "FLOATS"), ("ss", "STRINGS"), ("i", "INT"), ("s", "STRING")):
        made.attribute.add(name=name, type=getattr(onnx.AttributeProto, kind))
    (found,) = read(saved(tmp_path / "m.onnx", model(graph([made])))).operators[Identifier("d", "Op")].nodes
    assert [(item.value, item.count) for item in found.attributes] == [([], 0), ([], 0), (0, None), ("", None)]


def test_packed_and_unpacked_lists_are_one(tmp_path: Path) -> None:
    """onnx.proto has them unpacked; another writer may pack them."""
    attribute = (
        files.message(1, b"v") + files.message(8, b"\x01\x02") + b"\x40\x03" + b"\xa0\x01\x07"  # ints, packed and not
    )
    made = files.message(4, b"Op") + files.message(7, b"d") + files.message(5, attribute)
    path = tmp_path / "m.onnx"
    path.write_bytes(files.message(7, files.message(1, made)))
    (found,) = read(path).operators[Identifier("d", "Op")].nodes
    assert (found.attributes[0].value, found.attributes[0].count) == ([1, 2, 3], 3)


def test_nodes_inside_subgraphs_see_the_types_around_them(tmp_path: Path) -> None:
    inner = graph([node("Deep", ["x", "w"], ["z"], name="deep")], inputs=[], outputs=[value("z", ["n", 2])])
    branch = graph(
        [helper.make_node("If", ["c"], ["z2"], name="inner", then_branch=inner, else_branch=inner)],
        inputs=[],
        outputs=[value("z2")],
    )
    main = graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
        inputs=[value("x", ["batch", 3], TensorProto.FLOAT16), value("c", [], TensorProto.BOOL)],
        initializer=[numpy_helper.from_array(np.ones((3, 2), np.float64), "w")],
    )
    operator = read(saved(tmp_path / "m.onnx", model(main))).operators[Identifier("d", "Deep")]
    assert operator.count == 4
    assert operator.nodes[0].place == "graph, else_branch of If number 0, else_branch of If 'inner'"
    assert [item.type for item in (*operator.nodes[0].inputs, *operator.nodes[0].outputs)] == [
        "float16[batch, 3]",
        "float64[3, 2]",
        "float32[n, 2]",
    ]


def test_types_that_are_no_tensors(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.INT8, [2])
    optional = onnx.ValueInfoProto(name="o")
    optional.type.optional_type.elem_type.CopyFrom(sequence.type)
    unknown = helper.make_tensor_value_info("u", TensorProto.FLOAT, None)
    main = graph([node("Op", ["x", "o", "u", "missing"])], inputs=[sequence, optional, unknown])
    (found,) = read(saved(tmp_path / "m.onnx", model(main))).operators[Identifier("d", "Op")].nodes
    assert [item.type for item in found.inputs] == ["sequence(int8[2])", "optional(sequence(int8[2]))", "float32", None]


def test_what_is_no_operator_of_onnx_is_listed(tmp_path: Path) -> None:
    main = graph([helper.make_node("EfficientNMS_TRT", ["x"], ["y"]), helper.make_node("Relu", ["x"], ["z"])])
    main.node[1].domain = "ai.onnx"
    assert set(read(saved(tmp_path / "m.onnx", model(main))).operators) == {Identifier("", "EfficientNMS_TRT")}


def test_functions_of_one_name_are_told_apart_by_the_overload(tmp_path: Path) -> None:
    body = [helper.make_node("Identity", ["a"], ["b"])]
    made = model(
        graph([node("F", overload="two")]),
        functions=[files.function("F", body), files.function("F", body, overload="two")],
    )
    file = read(saved(tmp_path / "m.onnx", made))
    assert set(file.functions) == {Identifier("d", "F"), Identifier("d", "F", "two")}
    assert set(file.operators) == {Identifier("d", "F", "two")}


@pytest.mark.parametrize("ends", ["file", "nowhere"])
def test_a_path_of_another_kind(tmp_path: Path, ends: str) -> None:
    link = tmp_path / "link.onnx"
    link.symlink_to(saved(tmp_path / "m.onnx", model(graph([node("Op")]))) if ends == "file" else tmp_path / "none")
    if ends == "file":
        assert read(link).operators
    else:
        with pytest.raises(reading.ExportError, match=r"link.onnx cannot be read: No such file or directory\. Give"):
            read(link)
