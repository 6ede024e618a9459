"""--strip, --inline and --add-functions: the same numbers in ONNX Runtime, and files that onnx finds sound."""

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from inspection import files
from inspection.files import FEEDS, function, graph, model, node, run, saved, value
from onnx import TensorProto, helper

import oneop
from oneop.errors import ExportError
from oneop.inspection import rewriting
from support.onnx_checks import run_reference


@pytest.fixture(scope="session")
def wanted(exported: Path) -> np.ndarray:
    """What PyTorch says."""
    with torch.no_grad():
        expected: np.ndarray = files.Layers()(*map(torch.from_numpy, FEEDS.values())).numpy()
    np.testing.assert_allclose(run(exported), expected, rtol=1e-6)
    return expected


def check(path: Path) -> onnx.ModelProto:
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def kinds(proto: onnx.ModelProto) -> set[str]:
    return {item.op_type for item in proto.graph.node}


def test_strip(exported: Path, library: Path, wanted: np.ndarray, tmp_path: Path) -> None:
    done = rewriting.strip(exported, tmp_path / "new.onnx", ["insp::Affine"])
    assert done.operators == ("insp::Affine",)
    proto = check(done.path)
    assert [item.name for item in proto.functions] == ["Twice"]
    original = onnx.load(exported)
    del original.functions[[item.name for item in original.functions].index("Affine")]
    assert proto == original
    np.testing.assert_allclose(run(done.path, library), wanted, rtol=1e-6)
    with pytest.raises(Exception, match="Affine"):
        run(done.path)


def test_strip_everything(exported: Path, tmp_path: Path) -> None:
    done = rewriting.strip(exported, tmp_path / "new.onnx")
    assert set(done.operators) == {"insp::Affine", "insp::Twice"}
    assert not check(done.path).functions


def test_inline(exported: Path, wanted: np.ndarray, tmp_path: Path) -> None:
    done = rewriting.inline(exported, tmp_path / "new.onnx")
    proto = check(done.path)
    assert set(done.operators) == {"insp::Affine", "insp::Twice"}
    assert not proto.functions
    assert {item.domain for item in proto.graph.node} == {""}
    assert [item.domain for item in proto.opset_import] == [""]
    # What the functions had to ask is known now, and what was asked for nothing is gone.
    assert not kinds(proto) & {
        "If",
        "OptionalHasElement",
        "SequenceAt",
        "SequenceConstruct",
        "Equal",
        "And",
        "Not",
        "Or",
    }
    np.testing.assert_allclose(run(done.path), wanted, rtol=1e-6)
    examples = tuple(map(torch.from_numpy, FEEDS.values()))
    np.testing.assert_allclose(run_reference(proto, examples)[0], wanted, rtol=1e-6)


def test_openvino_runs_the_inlined_file(exported: Path, wanted: np.ndarray, tmp_path: Path) -> None:
    core = oneop.openvino.core([])
    with pytest.raises(RuntimeError, match="No conversion rule found for operations"):
        core.read_model(exported)
    compiled = core.compile_model(rewriting.inline(exported, tmp_path / "new.onnx").path, "CPU")
    np.testing.assert_allclose(next(iter(compiled(FEEDS).values())), wanted, rtol=1e-6)


def test_inline_one(exported: Path, wanted: np.ndarray, tmp_path: Path) -> None:
    """Twice's body calls Affine, whose function stays."""
    done = rewriting.inline(exported, tmp_path / "new.onnx", ["insp::Twice"])
    proto = check(done.path)
    assert done.operators == ("insp::Twice",)
    assert [item.name for item in proto.functions] == ["Affine"]
    assert "Affine" in kinds(proto)
    assert "Twice" not in kinds(proto)
    np.testing.assert_allclose(run(done.path), wanted, rtol=1e-6)


def test_a_function_that_only_a_removed_one_calls_goes_with_it(tmp_path: Path) -> None:
    functions = [
        function("Outer", [node("Inner", ["a"], ["b"])]),
        function("Inner", [helper.make_node("Neg", ["a"], ["b"])]),
        function("Other", [helper.make_node("Neg", ["a"], ["b"])]),
    ]
    path = saved(tmp_path / "m.onnx", model(graph([node("Outer"), node("Other", outputs=["z"])]), functions=functions))
    assert rewriting.strip(path, tmp_path / "new.onnx", ["d::Outer"]).operators == ("d::Outer", "d::Inner")
    assert [item.name for item in onnx.load(tmp_path / "new.onnx").functions] == ["Other"]


def test_add_functions(bare: Path, exported: Path, wanted: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="insp"):
        run(bare)
    done = rewriting.add_functions(bare, [files.OPERATORS], tmp_path / "new.onnx")
    assert set(done.operators) == {"insp::affine", "insp::twice"}
    proto = check(done.path)
    assert {item.name for item in proto.functions} == {"Affine", "Twice"}
    np.testing.assert_allclose(run(done.path), wanted, rtol=1e-6)
    examples = tuple(map(torch.from_numpy, FEEDS.values()))
    np.testing.assert_allclose(run_reference(proto, examples)[0], wanted, rtol=1e-6)


def test_add_what_was_stripped(exported: Path, library: Path, wanted: np.ndarray, tmp_path: Path) -> None:
    """There and back: the file is what the exporter wrote, and runs natively too."""
    rewriting.strip(exported, tmp_path / "new.onnx")
    rewriting.add_functions(tmp_path / "new.onnx", [files.OPERATORS], tmp_path / "new.onnx")
    proto, original = check(tmp_path / "new.onnx"), onnx.load(exported)
    assert proto.graph == original.graph
    assert sorted(item.SerializeToString() for item in proto.functions) == sorted(
        item.SerializeToString() for item in original.functions
    )
    np.testing.assert_allclose(run(tmp_path / "new.onnx"), wanted, rtol=1e-6)
    np.testing.assert_allclose(run(tmp_path / "new.onnx", library), wanted, rtol=1e-6)


def test_add_to_nodes_of_a_person_s_own(exported: Path, tmp_path: Path) -> None:
    """Written by hand: attributes that are left out are the definition's defaults, and nodes stand in branches."""
    branches = [
        graph([node("Affine", ["x"], ["z"], domain="insp", **given)], inputs=[], outputs=[value("z", ["n", 3])])
        for given in ({"alpha": 3.0}, {"power": 2.0})
    ]
    main = graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])],
        inputs=[value("x", ["n", 3]), value("c", [], TensorProto.BOOL)],
        outputs=[value("y", ["n", 3])],
    )
    path = saved(tmp_path / "m.onnx", model(main, ["insp"]))
    rewriting.add_functions(path, [files.OPERATORS], tmp_path / "new.onnx")
    check(tmp_path / "new.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "new.onnx", providers=["CPUExecutionProvider"])
    for condition, wanted in ((True, 3 * FEEDS["x"]), (False, FEEDS["x"] + 2)):
        found = session.run(None, {"x": FEEDS["x"], "c": np.array(condition)})[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.graph.node[0].attribute.add(name="alpha", type=2, i=1), "its attribute `alpha` is INT, and the"),
        (
            lambda m: m.graph.input[0].type.tensor_type.ClearField("shape"),
            "does not say dtype and rank of its input `x` (x)",
        ),
        (
            lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 7),
            "its input `x` is int64 of 2 dimensions",
        ),
        (lambda m: m.graph.node[0].input.extend(["x"] * 3), "has 4 inputs, and the definition 2. Export"),
        (lambda m: m.graph.node[0].ClearField("input"), "has 0 inputs, and the definition 2. Export"),
        (
            lambda m: setattr(m.graph.node[0], "op_type", "Other"),
            "has no node of them: insp::Affine, insp::Twice. Give",
        ),
        (lambda m: setattr(m.opset_import[0], "version", 17), "has opset version 17; oneop writes functions for 18"),
        (lambda m: m.metadata_props.add(key="oneop.fingerprint.insp::affine", value="0"), "from another definition"),
        (lambda m: m.graph.node[0].attribute.add(name="mode", type=3, s=b"\xff"), "its attribute `mode` is not UTF-8"),
    ],
)
def test_what_functions_cannot_be_added_to(exported: Path, tmp_path: Path, change: object, said: str) -> None:
    assert callable(change)
    main = graph(
        [node("Affine", ["x"], ["y"], domain="insp")], inputs=[value("x", ["n", 3])], outputs=[value("y", None)]
    )
    proto = model(main, ["insp"])
    change(proto)
    path = saved(tmp_path / "m.onnx", proto)
    with pytest.raises(ExportError) as caught:
        rewriting.add_functions(path, [files.OPERATORS], tmp_path / "new.onnx")
    assert said in str(caught.value)
    assert os.listdir(tmp_path) == ["m.onnx"]


# Functions of others: what ONNX allows in one.


def inlined(
    tmp_path: Path, proto: onnx.ModelProto, feeds: dict[str, np.ndarray], judge: str = "onnxruntime"
) -> onnx.ModelProto:
    """Checks that the file gives the same numbers inlined: those that ``judge`` gave before. ONNX Runtime takes
    not every function that ONNX allows, and onnx's own evaluator not every one that ONNX Runtime takes.
    """
    path = saved(tmp_path / "m.onnx", proto)
    if judge == "onnx":
        before = onnx.reference.ReferenceEvaluator(proto).run(None, feeds)
    else:
        before = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    rewriting.inline(path, tmp_path / "new.onnx")
    new = check(tmp_path / "new.onnx")
    assert not new.functions
    assert [item.name for item in new.graph.input] == [item.name for item in proto.graph.input]
    assert [item.name for item in new.graph.output] == [item.name for item in proto.graph.output]
    after = onnxruntime.InferenceSession(tmp_path / "new.onnx", providers=["CPUExecutionProvider"]).run(None, feeds)
    reference = onnx.reference.ReferenceEvaluator(new).run(None, feeds)
    for one, two, three in zip(before, after, reference, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-6)
        np.testing.assert_allclose(three, one, rtol=1e-6)
    return new


X = {"x": np.array([1.0, -2.0, 3.0], np.float32)}


def test_inline_an_output_that_is_an_input(tmp_path: Path) -> None:
    main = graph([node("F")], inputs=[value("x", [3])], outputs=[value("y", [3])])
    made = helper.make_function("d", "F", ["a"], ["a"], [], [helper.make_opsetid("", 18)])
    inlined(tmp_path, model(main, functions=[made]), X, "onnx")


def test_inline_the_same_output_twice(tmp_path: Path) -> None:
    body = [helper.make_node("Neg", ["a"], ["n"])]
    made = helper.make_function("d", "F", ["a"], ["n", "n"], body, [helper.make_opsetid("", 18)])
    outputs = [value("y", [3]), value("z", [3])]
    main = graph([node("F", outputs=["y", "z"])], inputs=[value("x", [3])], outputs=outputs)
    inlined(tmp_path, model(main, functions=[made]), X, "onnx")


def test_inline_names_that_a_branch_has_too(tmp_path: Path) -> None:
    """The body's tensor would hide the branch's own, or be hidden by it."""
    body = [helper.make_node("Neg", ["a"], ["t"]), helper.make_node("Exp", ["t"], ["b"])]
    branch = graph(
        [helper.make_node("Abs", ["x"], ["t"]), node("F", ["t"], ["u"]), helper.make_node("Add", ["u", "f"], ["z"])],
        inputs=[],
        outputs=[value("z", [3])],
    )
    other = graph([helper.make_node("Add", ["f", "x"], ["t"])], inputs=[], outputs=[value("t", [3])])
    main = graph(
        [
            node("F", ["x"], ["f"]),
            helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
            helper.make_node("Greater", ["s", "zero"], ["c"]),
            helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other),
        ],
        inputs=[value("x", [3])],
        outputs=[value("y", [3])],
        initializer=[helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0])],
    )
    new = inlined(tmp_path, model(main, functions=[function("F", body)]), X)
    assert "If" in kinds(new)  # it depends on a tensor
    inlined(tmp_path, model(main, functions=[function("F", body)]), {"x": -X["x"]})


def test_inline_attributes_with_defaults(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["c"])
    constant.attribute.add(name="value_float", ref_attr_name="k", type=onnx.AttributeProto.FLOAT)
    body = [constant, helper.make_node("Mul", ["a", "c"], ["b"])]
    made = function("F", body, attribute_protos=[helper.make_attribute("k", 3.0)])
    main = graph(
        [node("F", outputs=["t"]), node("F", ["t"], k=-1.0)], inputs=[value("x", [3])], outputs=[value("y", [3])]
    )
    inlined(tmp_path, model(main, functions=[made]), X)


def test_inline_a_loop_in_a_function(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["keep"], ["on"]), node("Half", ["v"], ["w"])],
        "body",
        [value("i", [], TensorProto.INT64), value("keep", [], TensorProto.BOOL), value("v", None)],
        [value("on", [], TensorProto.BOOL), value("w", None)],
    )
    loop = [
        helper.make_node("Constant", [], ["n"], value_int=3),
        helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("yes", TensorProto.BOOL, [], [True])),
        helper.make_node("Loop", ["n", "yes", "a"], ["b"], body=body),
    ]
    half = [helper.make_node("Constant", [], ["h"], value_float=0.5), helper.make_node("Mul", ["a", "h"], ["b"])]
    main = graph([node("F")], inputs=[value("x", [3])], outputs=[value("y", [3])])
    inlined(tmp_path, model(main, functions=[function("F", loop), function("Half", half)]), X)


def test_inline_a_file_that_reads_what_nothing_makes(tmp_path: Path) -> None:
    body = [helper.make_node("Neg", ["nowhere"], ["b"], name="neg")]
    path = saved(tmp_path / "m.onnx", model(graph([node("F")]), functions=[function("F", body)]))
    with pytest.raises(ExportError) as caught:
        rewriting.inline(path, tmp_path / "new.onnx")
    assert (
        str(caught.value)
        == "The graph of this file does not hold together: nothing makes the tensor 'nowhere', which node 'neg' reads."
        " Export the model again."
    )
    assert not (tmp_path / "new.onnx").exists()


# Where the new file goes.


def with_weights(path: Path, location: str = "w.bin", size: int = 12, **words: str) -> Path:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size // 4], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, "offset": "0", "length": str(size), **words}.items():
        tensor.external_data.add(key=key, value=text)
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    main = graph([node("F", ["w"])], inputs=[], outputs=[value("y", [3])], initializer=[tensor])
    return saved(path, model(main, functions=[function("F", body)]))


@pytest.mark.parametrize("change", [rewriting.strip, rewriting.inline])
def test_weights_stay_where_they_are(tmp_path: Path, change: object) -> None:
    assert callable(change)
    np.array([1.0, 2.0, 3.0], np.float32).tofile(tmp_path / "w.bin")
    path = with_weights(tmp_path / "m.onnx")
    change(path, tmp_path / "new.onnx")
    (tensor,) = onnx.load(tmp_path / "new.onnx", load_external_data=False).graph.initializer
    assert {entry.key: entry.value for entry in tensor.external_data}["location"] == "w.bin"
    if change is rewriting.inline:
        check(tmp_path / "new.onnx")
        assert onnx.reference.ReferenceEvaluator(str(tmp_path / "new.onnx")).run(None, {})[0].tolist() == [2, 4, 6]
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(ExportError) as caught:
        change(path, tmp_path / "elsewhere" / "new.onnx")
    assert (
        str(caught.value) == f"oneop inspect: {path} has its weights beside it (w.bin), and would not find them from"
        f" {tmp_path}/elsewhere. Give an --output in {tmp_path}, and copy both from there."
    )


def test_a_file_is_whole_or_not_written(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "new.onnx"
    target.write_text("what was there")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rewriting.os, "replace", full)
    with pytest.raises(
        ExportError, match=r"could not be written: No space left on device\. What was there is unchanged"
    ):
        rewriting.strip(exported, target)
    monkeypatch.undo()
    assert target.read_text() == "what was there"
    assert os.listdir(tmp_path) == ["new.onnx"]
    (tmp_path / "folder" / "new.onnx").mkdir(parents=True)
    with pytest.raises(ExportError, match=r"new\.onnx is a folder"):
        rewriting.strip(exported, tmp_path / "folder" / "new.onnx")
    with pytest.raises(ExportError, match="nowhere does not exist"):
        rewriting.strip(exported, tmp_path / "nowhere" / "new.onnx")


def test_the_input_is_left_alone_unless_asked_for(exported: Path, tmp_path: Path) -> None:
    before = exported.read_bytes()
    rewriting.strip(exported, tmp_path / "new.onnx")
    assert exported.read_bytes() == before
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(before)
    rewriting.strip(copy, copy)
    assert copy.read_bytes() == (tmp_path / "new.onnx").read_bytes()


def test_nothing_to_do(bare: Path, exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="has no functions: there is nothing to strip or to inline"):
        rewriting.strip(bare, tmp_path / "new.onnx")
    with pytest.raises(ExportError, match=r"has no function of other\. It has insp::"):
        rewriting.inline(exported, tmp_path / "new.onnx", ["other"])
    with pytest.raises(ExportError, match="has its functions already: insp::Affine, insp::Twice"):
        rewriting.add_functions(exported, [files.OPERATORS], tmp_path / "new.onnx")
