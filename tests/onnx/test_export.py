"""oneop.export and oneop.onnx.translations as a user meets them: names, options, files, errors."""

import dataclasses
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch
from jaxtyping import Float, Int
from onnx_ir.passes.common import InlinePass
from torch import Tensor

import oneop
from oneop.targets.onnx import completing, schemas, torch_exporter
from support.onnx_checks import (
    attributes,
    compare,
    eager,
    export_and_compare,
    export_quietly,
    run_onnxruntime,
    run_reference,
)


@oneop.op("onnx_export::affine")
def affine(
    x: Float[Tensor, "n k"], weight: Float[Tensor, "m k"], bias: Float[Tensor, "m"] | None = None, *, alpha: float = 1.0
) -> Float[Tensor, "n m"]:
    """alpha * x @ weight.T + bias"""
    y = alpha * (x @ weight.T)
    return y if bias is None else y + bias


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(3, 4))
        self.bias = torch.nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(affine(x, self.weight, self.bias, alpha=2.0)) @ torch.ones(3, 2)


EXAMPLE = (torch.randn(2, 4),)


def dims(value: onnx.ValueInfoProto) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    examples = [EXAMPLE, (torch.randn(7, 4),)]
    return export_and_compare(Net(), examples, tmp_path_factory.mktemp("net"), dynamic_shapes=({0: "batch"},))


def test_dynamic_dimensions_keep_their_names(exported: Any) -> None:
    graph = exported.proto.graph
    assert dims(graph.input[0]) == ["batch", 4]
    assert dims(graph.output[0]) == ["batch", 2]
    (node,) = exported.nodes(affine)
    (own,) = [value for value in graph.value_info if value.name == node.output[0]]
    assert dims(own) == ["batch", 3]


@pytest.mark.parametrize("form", ["Dim", "by name of the argument"])
def test_dynamic_dimensions_in_other_forms(tmp_path: Path, form: str) -> None:
    shapes: Any = ({0: torch.export.Dim("rows")},) if form == "Dim" else {"x": {0: "rows"}}
    export_quietly(Net().eval(), EXAMPLE, tmp_path / "model.onnx", dynamic_shapes=shapes)
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert dims(graph.input[0]) == ["rows", 4]
    assert dims(graph.output[0]) == ["rows", 2]


def test_the_model_carries_the_fingerprint(exported: Any) -> None:
    found = {item.key: item.value for item in exported.proto.metadata_props}
    assert found["oneop.fingerprint.onnx_export::affine"] == affine.definition.fingerprint


def test_the_domain_is_imported_once_at_version_1(exported: Any) -> None:
    assert [(item.domain, item.version) for item in exported.proto.opset_import if item.domain] == [("onnx_export", 1)]
    (function,) = exported.proto.functions
    imports = {item.domain: item.version for item in exported.proto.opset_import}
    assert all(imports[item.domain] == item.version for item in function.opset_import)


def test_a_plain_onnxruntime_runs_the_file_without_oneop(exported: Any, tmp_path: Path) -> None:
    """In a process that never imports oneop: onnx's checker and both runtimes."""
    code = """
        import sys, numpy, onnx, onnxruntime, onnx.reference
        path, values, out = sys.argv[1:]
        x = numpy.load(values)
        onnx.checker.check_model(onnx.load(path), full_check=True)
        feed = {onnxruntime.InferenceSession(path).get_inputs()[0].name: x}
        (first,) = onnxruntime.InferenceSession(path).run(None, feed)
        (second,) = onnx.reference.ReferenceEvaluator(path).run(None, feed)
        assert "oneop" not in sys.modules and "torch" not in sys.modules
        numpy.save(out, numpy.stack([first, second]))
    """
    x = torch.randn(5, 4)
    np.save(tmp_path / "x.npy", x.numpy())
    command = [sys.executable, "-c", textwrap.dedent(code), exported.path, tmp_path / "x.npy", tmp_path / "out.npy"]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=120)
    first, second = np.load(tmp_path / "out.npy")
    compare(eager(Net(), (x,)), [first], None, "onnxruntime")
    compare(eager(Net(), (x,)), [second], None, "ReferenceEvaluator")


# fallback="none" and "inline"


def test_fallback_none_writes_the_node_alone(tmp_path: Path) -> None:
    export_quietly(Net().eval(), EXAMPLE, tmp_path / "model.onnx", fallback="none")
    proto = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert not proto.functions
    (node,) = [node for node in proto.graph.node if node.domain == "onnx_export"]
    assert attributes(node) == {
        "alpha": 2.0,
        "plugin_version": "1",
        "plugin_namespace": "",
        "oneop_fingerprint": affine.definition.fingerprint,
        "oneop_inputs": "1 1 1",
    }
    assert "oneop.fingerprint.onnx_export::affine" in {item.key for item in proto.metadata_props}
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match="Affine"):
        run_onnxruntime(tmp_path / "model.onnx", EXAMPLE)


def test_fallback_inline_leaves_no_trace_of_the_domain(tmp_path: Path) -> None:
    exported = export_and_compare(Net(), [EXAMPLE], tmp_path, fallbacks=("inline",))
    assert {node.domain for node in exported.proto.graph.node} == {""}
    assert [item.domain for item in exported.proto.opset_import] == [""]


def test_another_fallback_is_refused(tmp_path: Path) -> None:
    with pytest.raises(oneop.ExportError) as caught:
        oneop.export(Net(), EXAMPLE, tmp_path / "model.onnx", fallback="functions")  # type: ignore[arg-type]
    assert str(caught.value) == "oneop.export: fallback is 'functions'. Pass one of 'function', 'inline', 'none'."


# torch.onnx.export with one argument


@pytest.mark.parametrize("fallback", ["function", "inline", "none"])
def test_translations_give_the_same_model(tmp_path: Path, fallback: Any) -> None:
    options: dict[str, Any] = {"dynamic_shapes": ({0: "batch"},), "verbose": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Net().eval(),
            EXAMPLE,
            tmp_path / "theirs.onnx",
            custom_translation_table=oneop.onnx.translations(fallback),
            external_data=False,
            **options,
        )
    export_quietly(
        Net().eval(), EXAMPLE, tmp_path / "ours.onnx", dynamic_shapes=options["dynamic_shapes"], fallback=fallback
    )
    theirs, ours = onnx.load(tmp_path / "theirs.onnx"), onnx.load(tmp_path / "ours.onnx")
    assert [node.op_type for node in theirs.graph.node] == [node.op_type for node in ours.graph.node]
    assert list(theirs.functions) == list(ours.functions)
    assert list(theirs.opset_import) == list(ours.opset_import)
    assert list(theirs.metadata_props) == list(ours.metadata_props)
    if fallback != "none":
        onnx.checker.check_model(theirs, full_check=True)
        compare(eager(Net(), EXAMPLE), run_onnxruntime(tmp_path / "theirs.onnx", EXAMPLE), None, "translations")


def test_translations_without_optimizing(tmp_path: Path) -> None:
    table = oneop.onnx.translations()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            Net().eval(), EXAMPLE, custom_translation_table=table, optimize=False, verbose=False
        )
    proto = program.model_proto
    assert [function.name for function in proto.functions] == ["Affine"]
    compare(eager(Net(), EXAMPLE), run_reference(proto, EXAMPLE), None, "ReferenceEvaluator")


def test_the_hooks_leave_other_models_and_other_passes_alone(exported: Any) -> None:
    oneop.onnx.translations()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(torch.nn.Linear(4, 3).eval(), EXAMPLE, verbose=False)
    assert not program.model.functions
    assert not program.model.metadata_props
    model = onnx_ir.from_proto(exported.proto)
    InlinePass()(model)
    assert not model.functions
    compare(eager(Net(), EXAMPLE), run_reference(onnx_ir.to_proto(model), EXAMPLE), None, "inlined by onnx_ir")


def test_export_needs_no_hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under a torch whose exporter is another inside."""
    from torch.onnx._internal._lazy_import import onnxscript_apis

    oneop.onnx.translations()
    for name in ("convert_version", "optimize"):
        monkeypatch.delattr(onnxscript_apis, name)
    monkeypatch.setattr(torch_exporter, "install_hooks", lambda *_: False)

    class WithoutBias(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return affine(x, x, alpha=0.5)

    exported = export_and_compare(WithoutBias(), [EXAMPLE], tmp_path, fallbacks=("inline", "function"))
    assert [len(node.input) for node in exported.nodes(affine)] == [3]
    with pytest.raises(oneop.ExportError) as caught:
        oneop.onnx.translations()
    assert str(caught.value) == (
        f"oneop.onnx.translations: torch {torch.__version__} has another ONNX exporter inside than oneop knows "
        "(torch 2.13). Call oneop.export, which does not depend on it."
    )


# torch.onnx.export's own options


def test_options_of_torch_pass_through(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    program = export_quietly(
        Net().eval(),
        EXAMPLE,
        path,
        input_names=["features"],
        output_names=["scores"],
        opset_version=18,
        external_data=True,
    )
    assert isinstance(program, torch.onnx.ONNXProgram)
    proto = onnx.load(path, load_external_data=False)
    assert [item.name for item in proto.graph.input] == ["features"]
    assert [item.name for item in proto.graph.output] == ["scores"]
    assert {item.version for item in proto.opset_import if not item.domain} == {18}
    assert {item.version for item in proto.functions[0].opset_import if not item.domain} == {18}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    compare(eager(Net(), EXAMPLE), run_onnxruntime(path, EXAMPLE), None, "external data")


def test_a_table_of_the_user_goes_along(tmp_path: Path) -> None:
    from onnxscript import opset20

    def relu(x: Any) -> Any:
        return opset20.Max(x, opset20.Sub(x, x))

    export_quietly(
        Net().eval(), EXAMPLE, tmp_path / "model.onnx", custom_translation_table={torch.ops.aten.relu.default: relu}
    )
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert "Max" in kinds
    assert "Relu" not in kinds
    assert "Affine" in kinds


def test_keyword_arguments_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    export_quietly(Net().eval(), (), path, kwargs={"x": EXAMPLE[0]}, dynamic_shapes={"x": {0: "batch"}})
    assert dims(onnx.load(path).graph.input[0]) == ["batch", 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"opset_version": 17}, "oneop.export: opset_version is 17. Give 18 or newer, or leave it out."),
        ({"f": "model.onnx"}, "oneop.export: there is no option `f`. Give the file as the third argument, `path`."),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(oneop.ExportError) as caught:
        oneop.export(Net(), EXAMPLE, tmp_path / "model.onnx", **options)
    assert str(caught.value) == message


def test_an_older_opset_through_torch_is_refused_too() -> None:
    table = oneop.onnx.translations()
    with pytest.raises(oneop.ExportError) as caught:
        torch.onnx.export(Net().eval(), EXAMPLE, custom_translation_table=table, opset_version=17, verbose=False)
    assert str(caught.value) == (
        "onnx_export::affine: it cannot be exported with opset_version=17. Export with 18 or newer, or leave "
        "opset_version "
        "out."
    )


# Files


def test_a_folder_that_does_not_exist_is_named_before_any_work(tmp_path: Path) -> None:
    folder = tmp_path / "absent"
    with pytest.raises(oneop.ExportError) as caught:
        oneop.export(Net(), EXAMPLE, folder / "model.onnx")
    assert str(caught.value) == f"oneop.export: the folder {folder} does not exist. Create it, or give another path."
    with pytest.raises(oneop.ExportError) as caught:
        oneop.export(Net(), EXAMPLE, tmp_path)
    assert str(caught.value) == f"oneop.export: {tmp_path} is a folder. Give the path of a file in it."


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(oneop.ExportError) as caught:
        export_quietly(Net().eval(), EXAMPLE, path)
    assert str(caught.value) == (
        f"oneop.export: {path} could not be written: No space left on device. What was there is unchanged; free "
        "the disk, or give "
        "another path."
    )
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_bytes() == b"old"


def test_a_damaged_file_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model from which the optimizer drops a constant that is used."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    restore = completing.restore

    def damage(model: onnx_ir.Model) -> None:
        restore(model)
        for name in list(model.graph.initializers):
            del model.graph.initializers[name]

    monkeypatch.setattr(completing, "restore", damage)
    with pytest.raises(oneop.ExportError) as caught:
        export_quietly(Net().eval(), EXAMPLE, path)
    said, _, remedy = str(caught.value).partition("\n")
    assert said.startswith("oneop.export: the file would be damaged, and nothing was written. onnx says: Nodes in a ")
    assert remedy == (
        "This is a fault of oneop, or of torch's exporter. Try optimize=False, or another fallback=; and please report "
        "it to the project of oneop, with the model's code and the versions of torch, onnx and onnxscript."
    )
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_bytes() == b"old"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    link = tmp_path / "model.onnx"
    link.symlink_to(Path("versions") / "1.onnx")
    for _ in range(2):
        export_quietly(Net().eval(), EXAMPLE, link)
        assert link.is_symlink()
        assert [file.name for file in (tmp_path / "versions").iterdir()] == ["1.onnx"]
    onnx.checker.check_model(link.resolve())


def test_an_export_that_succeeds_prints_nothing(tmp_path: Path) -> None:
    """Nothing of the traces that are tried, of torch's steps and warnings, or of packages that torch could use too."""
    (tmp_path / "operators.py").write_text(
        textwrap.dedent("""
            import torch
            import oneop
            from jaxtyping import Float
            from torch import Tensor

            @oneop.op("onnx_silent::hard")
            def hard(x: Float[Tensor, "m n"], *, p: float = 1.0, q: float = 2.0) -> Float[Tensor, "m n"]:
                if x.shape[0] > 4:
                    return x * p
                return x * q if p > 0 else x + q

            class Model(torch.nn.Module):
                def forward(self, x):
                    return hard(x)

            oneop.export(Model().eval(), (torch.rand(2, 3),), "model.onnx")
        """)
    )
    command = [sys.executable, "operators.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_warning_of_the_models_own_still_comes_through(tmp_path: Path) -> None:
    class Warns(Net):
        def forward(self, x: Tensor) -> Tensor:
            warnings.warn("`mine` is deprecated", FutureWarning, stacklevel=1)
            return super().forward(x)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = torch.export.export(Warns().eval(), EXAMPLE, strict=False)
        caught.clear()
        oneop.export(Warns().eval(), EXAMPLE, tmp_path / "model.onnx")
        oneop.export(program, EXAMPLE, tmp_path / "model.onnx")
    assert {(str(item.message), item.category) for item in caught} == {("`mine` is deprecated", FutureWarning)}


# References that cannot be a function


@oneop.op("onnx_export::by_value")
def by_value(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return x * float(np.linalg.norm(x.detach().numpy()))


class ByValue(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return by_value(x)


def test_a_reference_that_onnx_cannot_say(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with pytest.raises(oneop.ExportError) as caught:
        export_quietly(ByValue().eval(), (torch.randn(3),), path)
    message = str(caught.value)
    assert message.startswith("onnx_export::by_value: its reference cannot become an ONNX function: ")
    assert message.endswith(
        'Rewrite the reference in operations that torch.onnx.export takes, or export with fallback="none" and '
        "run the file with "
        "the operator's native library."
    )
    assert path.read_bytes() == b"old"
    export_quietly(ByValue().eval(), (torch.randn(3),), path, fallback="none")
    assert [node.op_type for node in onnx.load(path).graph.node] == ["ByValue"]


def test_the_same_error_comes_through_torch_onnx_export() -> None:
    table = oneop.onnx.translations()
    with pytest.raises(oneop.ExportError, match=r"^onnx_export::by_value: its reference cannot become"):
        torch.onnx.export(ByValue().eval(), (torch.randn(3),), custom_translation_table=table, verbose=False)


@oneop.op("onnx_export::plus_half")
def plus_half(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    return (x + 0.5).clamp(min=0.25)


def test_dtypes_that_need_different_bodies(tmp_path: Path) -> None:
    class Both(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return plus_half(x).double() + plus_half(y)

    example = (torch.randn(3), torch.randn(3).double())
    with pytest.raises(oneop.ExportError) as caught:
        export_quietly(Both().eval(), example, tmp_path / "model.onnx")
    assert str(caught.value) == (
        "onnx_export::plus_half: two calls in this model need different ONNX functions because of the dtypes "
        "(Float float32 and Float "
        'float64), and one function cannot tell them apart. Export with fallback="inline", which gives each call '
        "its own nodes, or "
        'with fallback="none".'
    )
    export_and_compare(Both(), [example], tmp_path, fallbacks=("inline",))


def test_native_only_has_no_fallback(tmp_path: Path) -> None:
    @oneop.op("onnx_export::native_one")
    def native_one(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return x

    # A real one needs a kernel, and its compilation; exporting looks at the definition only.
    native_one.definition = dataclasses.replace(native_one.definition, native_only=True)

    class Native(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return native_one(x)

    with pytest.raises(oneop.ExportError) as caught:
        export_quietly(Native().eval(), (torch.randn(3),), tmp_path / "model.onnx")
    assert str(caught.value) == (
        "onnx_export::native_one: its reference cannot become an ONNX function: native_only=True says that there "
        "is no reference. "
        'Write a reference, or export with fallback="none" and run the file with the operator\'s native library.'
    )
    export_quietly(Native().eval(), (torch.randn(3),), tmp_path / "model.onnx", fallback="none")


def test_an_error_of_the_traced_call_comes_as_it_is(tmp_path: Path) -> None:
    class Wrong(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return affine(x, x[:, :3])

    with pytest.raises(oneop.CallError, match=r"^onnx_export::affine: input `weight` has shape \(2, 3\)"):
        export_quietly(Wrong().eval(), EXAMPLE, tmp_path / "model.onnx")


# What onnx knows of an operator


def test_the_schema_is_the_definition() -> None:
    schemas.register(affine.definition)
    schema = onnx.defs.get_schema("Affine", 1, "onnx_export")
    option = onnx.defs.OpSchema.FormalParameterOption
    assert [(item.name, item.type_str, item.option) for item in schema.inputs] == [
        ("x", "Float", option.Single),
        ("weight", "Float", option.Single),
        ("bias", "Float", option.Optional),
    ]
    assert [item.name for item in schema.outputs] == ["out"]
    assert schema.attributes["alpha"].default_value.f == 1.0
    (constraint,) = schema.type_constraints
    assert set(constraint.allowed_type_strs) == {
        "tensor(float)",
        "tensor(double)",
        "tensor(float16)",
        "tensor(bfloat16)",
    }


def test_the_checker_knows_the_operator(exported: Any) -> None:
    broken = onnx.ModelProto()
    broken.CopyFrom(exported.proto)
    (node,) = [node for node in broken.graph.node if node.op_type == "Affine"]
    node.attribute.append(onnx.helper.make_attribute("gamma", 1.0))
    with pytest.raises(onnx.checker.ValidationError, match="gamma"):
        onnx.checker.check_model(broken)


def test_two_operators_cannot_be_one_node(tmp_path: Path) -> None:
    @oneop.op("onnx_export::one_name", onnx_name="Same")
    def one_name(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return x + 1

    @oneop.op("onnx_export::other_name", onnx_name="Same")
    def other_name(x: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        return x + 1

    class Both(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return one_name(x), other_name(y)

    with pytest.raises(oneop.ExportError) as caught:
        export_quietly(Both().eval(), (torch.randn(3), torch.arange(3)), tmp_path / "model.onnx")
    assert str(caught.value) == (
        "onnx_export::other_name: its ONNX node would be onnx_export::Same, which onnx_export::one_name has already. "
        "Give one of them another onnx_name=."
    )
