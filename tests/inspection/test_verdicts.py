"""What each runtime makes of an operator, and what is said of libraries and definitions that were given."""

import os
import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime
import pytest
from inspection import files
from inspection.files import function, graph, model, node, saved
from onnx import helper

import oneop
from oneop import registry
from oneop.errors import BuildError, DefinitionError
from oneop.inspection import rewriting
from oneop.inspection.examining import Inspection, inspect
from oneop.inspection.facts import Identifier
from oneop.inspection.judging import Verdict, runtimes
from oneop.targets.onnxruntime import inspecting as ort

ROOT = Path(__file__).parents[2]
AFFINE, TWICE = Identifier("insp", "Affine"), Identifier("insp", "Twice")


def verdict(found: Inspection, identifier: Identifier, target: str) -> Verdict:
    (item,) = (item for item in found.operators if item.operator.identifier == identifier)
    return item.verdicts[target]


def statuses(found: Inspection, identifier: Identifier) -> list[str]:
    return [verdict(found, identifier, runtime.target).status for runtime in found.runtimes]


def judged(tmp_path: Path, *nodes: onnx.NodeProto, **parts: object) -> Inspection:
    domains = {item.domain for item in nodes} | {"d"}
    return inspect(saved(tmp_path / "m.onnx", model(graph(nodes), sorted(domains), **parts)))


def test_the_runtimes() -> None:
    assert [(item.target, item.title) for item in runtimes()] == [
        ("onnxruntime", "ONNX Runtime"),
        ("openvino", "OpenVINO"),
        ("tensorrt", "TensorRT"),
    ]


def test_a_new_runtime_is_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by its file, without a word anywhere else."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "__init__.py").touch()
    (tmp_path / "other" / "inspecting.py").write_text(
        "from oneop.inspection.judging import Runtime, Verdict\n"
        "RUNTIME = Runtime('other', 'Other', ('start',), (), lambda question: Verdict('kernel', 'all'))\n"
    )
    monkeypatch.setattr(oneop.targets, "__path__", [*oneop.targets.__path__, str(tmp_path)])
    assert [item.title for item in runtimes()] == ["ONNX Runtime", "OpenVINO", "TensorRT", "Other"]
    for name in ("oneop.targets.other", "oneop.targets.other.inspecting"):
        monkeypatch.delitem(sys.modules, name)


def test_functions_alone(exported: Path) -> None:
    found = inspect(exported)
    assert statuses(found, AFFINE) == ["function", "no", "no"]
    assert verdict(found, AFFINE, "onnxruntime") == Verdict("function", "the function in the file")
    openvino = verdict(found, AFFINE, "openvino")
    assert openvino.because == "its ONNX front end takes no functions apart"
    assert (
        openvino.remedy
        == f'oneop inspect {exported} --inline --output NEW.onnx; or export again with fallback="inline"; or oneop'
        " build "
        "FILE --target openvino, with the file that defines insp::affine, and add the library with Core.add_extension"
    )
    assert verdict(found, AFFINE, "tensorrt").because == "the parser calls no function with an absent input"
    assert found.faults == found.notes == ()


def test_tensorrt_reads_the_wrong_tensor_into_a_function(tmp_path: Path) -> None:
    """Its parser binds a function's input by name alone: one that a tensor of the graph has is that tensor."""
    body = [helper.make_node("Sub", ["x", "w"], ["b"])]
    made = model(
        graph(
            [node("F", ["x", "w"], ["t"]), node("F", ["w", "t"], ["y"])], inputs=[files.value("x"), files.value("w")]
        ),
        functions=[function("F", body, inputs=("x", "w"))],
    )
    found = inspect(saved(tmp_path / "m.onnx", made))
    assert verdict(found, Identifier("d", "F"), "tensorrt") == Verdict(
        "no",
        "the function's input x has the name of a tensor of the graph, and the parser reads that one",
        f"oneop inspect {tmp_path}/m.onnx --inline --output NEW.onnx; or for a plugin: oneop inspect {tmp_path}/m.onnx "
        "--strip --output NEW.onnx",
    )
    made.graph.node.pop()
    assert verdict(inspect(saved(tmp_path / "m.onnx", made)), Identifier("d", "F"), "tensorrt").status == "function"


def test_neither_kernel_nor_function(bare: Path) -> None:
    found = inspect(bare, definitions=[files.OPERATORS])
    assert statuses(found, AFFINE) == statuses(found, TWICE) == ["no", "no", "no"]
    add = f"oneop inspect {bare} --add-functions {files.OPERATORS} --output NEW.onnx"
    assert verdict(found, AFFINE, "onnxruntime") == Verdict(
        "no",
        "no kernel, and no function in the file",
        f"oneop build {files.OPERATORS} --target onnxruntime, and register the library; or {add}",
    )
    assert (
        verdict(found, TWICE, "onnxruntime").remedy
        == f"insp::twice in {files.OPERATORS} has no kernels: give it kernels=[...], and register the library; or {add}"
    )
    assert found.faults == ()


def test_a_library(exported: Path, library: Path) -> None:
    """It holds the one operator that has a kernel; TensorRT and OpenVINO cannot use it."""
    found = inspect(exported, [library])
    assert verdict(found, AFFINE, "onnxruntime") == Verdict("kernel", "libaffine_onnxruntime.so")
    assert verdict(found, TWICE, "onnxruntime").status == "function"
    assert statuses(found, AFFINE)[1:] == ["no", "no"]
    assert found.libraries[0].targets == ("onnxruntime",)
    assert found.libraries[0].dtypes == {"insp::affine": (("float32",),)}
    assert found.faults == ("insp::twice is in none of the libraries given. Build one from the file that defines it.",)


def test_a_stale_library_and_a_stale_definition_are_named(exported: Path, library: Path, tmp_path: Path) -> None:
    proto = onnx.load(exported)
    for entry in proto.metadata_props:
        if entry.key.endswith("affine"):
            mine, entry.value = entry.value, "0123456789abcdef"
    older = saved(tmp_path / "older.onnx", proto)
    found = inspect(older, [library], [files.OPERATORS])
    assert verdict(found, AFFINE, "onnxruntime") == Verdict(
        "no",
        f"libaffine_onnxruntime.so is stale: it was built from another definition of insp::affine (fingerprint {mine}) "
        "than the file was exported from (0123456789abcdef)",
        "build the library again from the definition that the file was exported from, or export the file again",
    )
    assert found.faults == (
        (
            f"{library} is stale: it holds insp::affine of another definition (fingerprint {mine}) than the file was"
            " exported from (0123456789abcdef). Build it again, or export the file again."
        ),
        "insp::twice is in none of the libraries given. Build one from the file that defines it.",
        (
            f"{files.OPERATORS} does not fit: its insp::affine is another definition (fingerprint {mine}) than the file"
            " was exported from (0123456789abcdef). Export the file again, or give the older definition."
        ),
    )


def test_a_missing_definition_is_named(exported: Path) -> None:
    found = inspect(exported, definitions=[ROOT / "examples" / "scaled_linear_python" / "scaled_linear.py"])
    assert found.faults == (
        "insp::affine is in none of the definition files given. Give the file that defines it as well.",
        "insp::twice is in none of the definition files given. Give the file that defines it as well.",
    )


def test_a_dtype_without_a_kernel(bare: Path, library: Path, tmp_path: Path) -> None:
    proto = onnx.load(bare)
    for item in proto.graph.input:
        item.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    found = inspect(saved(tmp_path / "double.onnx", proto), [library])
    assert verdict(found, AFFINE, "onnxruntime") == Verdict(
        "no",
        "libaffine_onnxruntime.so has insp::affine, and no kernel of it for float64",
        "add float64 to dtypes= in the definition and build the library again, or leave the library out",
    )


def test_operators_of_onnx_runtime_and_of_openvino(tmp_path: Path) -> None:
    kinds = [("com.microsoft", "Attention"), ("com.microsoft", "QMoE"), ("com.microsoft", "PagedAttention")]
    kinds += [("com.microsoft", "Nonsense"), ("ai.onnx.ml", "Scaler"), ("ai.onnx.contrib", "BertTokenizer")]
    kinds += [("org.openvinotoolkit", "FakeQuantize"), ("com.microsoft", "Gelu"), ("", "EfficientNMS_TRT")]
    found = judged(tmp_path, *(node(kind, domain=domain) for domain, kind in kinds))
    assert {kind: statuses(found, Identifier(domain, kind)) for domain, kind in kinds} == {
        "Attention": ["kernel", "kernel", "unknown"],
        "QMoE": ["kernel", "no", "no"],
        "PagedAttention": ["kernel", "no", "no"],
        "Nonsense": ["no", "no", "no"],
        "Scaler": ["kernel", "no", "no"],
        "BertTokenizer": ["no", "no", "no"],
        "FakeQuantize": ["no", "kernel", "no"],
        "Gelu": ["kernel", "kernel", "unknown"],
        "EfficientNMS_TRT": ["no", "no", "no"],
    }
    assert "on the CPU" in verdict(found, Identifier("com.microsoft", "PagedAttention"), "onnxruntime").because
    assert "pip install onnxruntime-extensions" in str(
        verdict(found, Identifier("ai.onnx.contrib", "BertTokenizer"), "onnxruntime").remedy
    )
    assert "takes it for ONNX's own Gelu" in verdict(found, Identifier("com.microsoft", "Gelu"), "tensorrt").because


def test_a_function_that_calls_what_does_not_run(tmp_path: Path) -> None:
    functions = [function("Outer", [node("Inner", ["a"], ["b"])]), function("Inner", [node("Nobody", ["a"], ["b"])])]
    found = judged(tmp_path, node("Outer"), functions=functions)
    assert verdict(found, Identifier("d", "Outer"), "onnxruntime") == Verdict(
        "no", "the function calls d::Inner, which does not run", "make d::Inner run"
    )
    assert (
        verdict(found, Identifier("d", "Inner"), "onnxruntime").because
        == "the function calls d::Nobody, which does not run"
    )


def test_overloads(tmp_path: Path) -> None:
    body = [helper.make_node("Identity", ["a"], ["b"])]
    functions = [function("F", body, overload="one"), function("F", body, overload="two")]
    found = judged(tmp_path, node("F", overload="one"), functions=functions)
    assert "older ones ignore overloads" in verdict(found, Identifier("d", "F", "one"), "onnxruntime").because


def test_notes(tmp_path: Path) -> None:
    body = [helper.make_node("Identity", ["a"], ["b"])]
    proto = model(graph([node("Op", domain="other")]), ["d"], functions=[function("Unused", body)])
    helper.set_model_props(proto, {"oneop.fingerprint.gone::op": "0123456789abcdef"})
    assert inspect(saved(tmp_path / "m.onnx", proto)).notes == (
        "No node of the graph calls d::Unused.",
        "The file imports no version of other; runtimes refuse nodes of such a domain. Export the model again.",
        'gone::op: no node left; the reference stands in place of each (fallback="inline").',
    )


def test_an_operator_with_a_name_of_its_own_in_onnx(tmp_path: Path) -> None:
    """The file knows it as named::thing, and its node is named::Whatever: clear, where there is one of each."""
    proto = model(graph([node("Whatever", domain="named")]), ["named"])
    helper.set_model_props(proto, {"oneop.fingerprint.named::thing": "0123456789abcdef"})
    (item,) = inspect(saved(tmp_path / "m.onnx", proto)).operators
    assert (item.names, item.fingerprint) == (("named::thing",), "0123456789abcdef")
    proto.graph.node.append(node("Second", domain="named"))
    assert [item.names for item in inspect(saved(tmp_path / "m.onnx", proto)).operators] == [(), ()]


def test_libraries_that_are_none(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(BuildError, match=r"text\.so cannot be loaded: .*Build it on this machine with oneop build"):
        inspect(bare, [tmp_path / "text.so"])
    with pytest.raises(BuildError, match=r"none\.so: there is no such file\. Give the path of a library that oneop"):
        inspect(bare, [tmp_path / "none.so"])
    with pytest.raises(DefinitionError, match="there is no such file"):
        inspect(bare, definitions=[tmp_path / "none.py"])


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Libraries that oneop did not build: one that ends the process, one of a user's own, one for nothing here."""
    folder = tmp_path_factory.mktemp("strange")
    sources = {
        "ends": "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }",
        "own": "void RegisterCustomOps(void); void RegisterCustomOps(void) {}",
        "other": "int other(void); int other(void) { return 1; }",
    }
    found = {}
    for name, text in sources.items():
        (folder / f"{name}.c").write_text(text)
        found[name] = folder / f"lib{name}.so"
        subprocess.run(
            [os.environ.get("CC", "cc"), "-shared", "-fPIC", folder / f"{name}.c", "-o", found[name]], check=True
        )
    return found


def test_a_library_that_ends_the_process(bare: Path, strange: dict[str, Path]) -> None:
    with pytest.raises(
        BuildError, match=r"libends\.so: the process that loaded it ended \(signal 6\)\. Build it again"
    ):
        inspect(bare, [strange["ends"]])


@pytest.fixture(scope="module")
def plugin(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a library for TensorRT shows of itself: its entry, and oneop's table."""
    folder = tmp_path_factory.mktemp("plugin")
    fingerprint = inspect(bare).file.fingerprints["insp::affine"]
    (folder / "plugin.c").write_text(f"""
        #include "oneop.h"
        const oneop_library *oneop_library_v1(void);
        int getCreators(void);
        int getCreators(void) {{ return 0; }}
        static const oneop_dtype dtypes[] = {{{{2, 32, 1}}}};
        static const oneop_kernel kernels[] = {{{{dtypes, 2, 0}}}};
        static const oneop_operator operators[] = {{
          {{"insp::affine", "{fingerprint}", 2, 1, 3, 1, 1, 1, 0, kernels}}
        }};
        static const oneop_library table = {{1, 1, operators}};
        const oneop_library *oneop_library_v1(void) {{ return &table; }}
    """)
    headers = Path(oneop.__file__).parent / "kernels" / "include"
    compiler = os.environ.get("CC", "cc")
    library = folder / "libplugin.so"
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{headers}", folder / "plugin.c", "-o", library], check=True)
    return library


def test_a_plugin(bare: Path, exported: Path, plugin: Path, tmp_path: Path) -> None:
    found = inspect(bare, [plugin])
    assert found.libraries[0].targets == ("tensorrt",)
    assert verdict(found, AFFINE, "tensorrt") == Verdict("kernel", "libplugin.so")
    proto = onnx.load(bare)
    (version,) = (item for item in proto.graph.node[0].attribute if item.name == "plugin_version")
    version.s = b"2"
    assert verdict(inspect(saved(tmp_path / "m.onnx", proto), [plugin]), AFFINE, "tensorrt") == Verdict(
        "no",
        f"node {proto.graph.node[0].name!r} asks for version '2' in namespace '', and libplugin.so has version '1' in "
        "namespace ''",
        'export again with fallback="none", which writes what the plugin needs to know',
    )


def test_a_plugin_beside_a_function(exported: Path, plugin: Path, tmp_path: Path) -> None:
    """The parser takes the function; without it, a plugin has to be told which inputs are absent."""
    proto = onnx.load(exported)
    for item in proto.graph.node:
        if item.op_type == "Affine":
            item.input[:] = [item.input[0], "shift"]
    found = inspect(saved(tmp_path / "m.onnx", proto), [plugin])
    affine = verdict(found, AFFINE, "tensorrt")
    assert (affine.status, affine.because) == (
        "no",
        "the function's input x has the name of a tensor of the graph, and the parser reads that one",
    )
    rewriting.strip(tmp_path / "m.onnx", tmp_path / "new.onnx")
    assert verdict(inspect(tmp_path / "new.onnx", [plugin]), AFFINE, "tensorrt").status == "kernel"
    proto.graph.node[0].input[:] = ["", "shift"]
    assert verdict(inspect(saved(tmp_path / "m.onnx", proto), [plugin]), AFFINE, "tensorrt").status == "no"
    rewriting.strip(tmp_path / "m.onnx", tmp_path / "new.onnx")
    assert "does not say which of its inputs is absent" in (
        verdict(inspect(tmp_path / "new.onnx", [plugin]), AFFINE, "tensorrt").because
    )


def test_libraries_of_others(bare: Path, strange: dict[str, Path]) -> None:
    found = inspect(bare, [strange["own"], strange["other"]])
    assert verdict(found, AFFINE, "onnxruntime") == Verdict(
        "unknown", "oneop did not build libown.so, which may hold it", "load the file with it, and see"
    )
    assert found.faults == (
        f"{strange['other']} is a library for none of the runtimes here. Build one with oneop build --target.",
    )


def test_onnx_runtime_s_own_operators_are_those_that_it_lists() -> None:
    state = onnxruntime.capi.onnxruntime_pybind11_state
    if onnxruntime.__version__.split(".")[:2] != ["1", "32"]:
        pytest.skip(f"the table is that of onnxruntime 1.32, not of {onnxruntime.__version__}")
    known = {(item.domain, item.name) for item in state.get_all_operator_schema() if item.domain}
    cpu = {(item.domain, item.op_name) for item in state.get_all_opkernel_def() if item.domain}
    assert cpu == ort.ON_CPU
    assert known - cpu == ort.ELSEWHERE


_PROBE = """
import os, sys
import openvino
from onnx import helper
core = openvino.Core()
def refused(operators):
    value = lambda name, shape: helper.make_tensor_value_info(name, 1, shape)
    nodes = [helper.make_node(kind, ["x"], [f"y{i}"], domain=domain) for i, (domain, kind) in enumerate(operators)]
    outputs = [value(f"y{i}", None) for i in range(len(nodes))]
    imports = [helper.make_opsetid(domain, 1) for domain in {domain for domain, _ in operators}]
    graph = helper.make_graph(nodes, "g", [value("x", [2])], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), *imports], ir_version=8)
    try:
        core.read_model(model.SerializeToString())
    except Exception as error:
        return str(error).partition("No conversion rule found for operations: ")[2].partition("\\n")[0]
    return ""
built_in, others = ([tuple(item.split("::")) for item in text.split()] for text in sys.argv[1:3])
print("others", refused(others), flush=True)
for operator in built_in:
    if os.fork() == 0:  # a converter may crash on a node that is no call of its operator
        print("built in", *operator, refused([operator]), flush=True)
        os._exit(0)
    os.wait()
"""


def test_openvino_s_own_operators_are_those_that_it_converts() -> None:
    import openvino

    from oneop.targets.openvino import inspecting

    if openvino.__version__.split(".")[:2] != ["2026", "4"]:
        pytest.skip(f"the table is that of openvino 2026.4, not of {openvino.__version__}")
    known = {item for item in {*ort.ON_CPU, *ort.ELSEWHERE} if not item[0].endswith(("nchwc", "nhwc"))}
    others = sorted(known - inspecting.BUILT_IN)
    arguments = [" ".join("::".join(item) for item in sorted(items)) for items in (inspecting.BUILT_IN, others)]
    done = subprocess.run([sys.executable, "-c", _PROBE, *arguments], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    refused = next(line for line in lines if line.startswith("others ")).removeprefix("others ")
    assert sorted(refused.split(", ")) == sorted(f"{domain}.{kind}" for domain, kind in others)
    converted = [line.split(maxsplit=4)[2:] for line in lines if line.startswith("built in ")]
    assert [item for item in converted if len(item) > 2] == []


def test_a_library_for_openvino(tmp_path: Path) -> None:
    """The one that OpenVINO's own tests build: compiled once for both."""
    operators = registry.load_file(ROOT / "tests" / "openvino" / "operators" / "more.py")
    definition = operators[0].definition
    made = model(graph([node(definition.onnx_name, domain=definition.namespace)]), [definition.namespace])
    helper.set_model_props(made, {f"oneop.fingerprint.{definition.name}": definition.fingerprint})
    library = oneop.build(operators, "openvino", tmp_path)
    found = inspect(saved(tmp_path / "m.onnx", made), [library])
    assert found.libraries[0].targets == ("openvino",)
    assert [item.verdicts["openvino"] for item in found.operators] == [Verdict("kernel", library.name)]
    assert [item.verdicts["onnxruntime"].status for item in found.operators] == ["no"]
    assert found.faults == ()
