"""oneop.targets.openvino: cores and compiled models with the extension, and models that do not belong to it."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import openvino
import pytest
import torch

import oneop
from gallery.gallery import plain
from oneop.errors import BuildError, ExportError
from oneop.targets.openvino import compile_model, core
from support.ov_models import model, operator, read, results

X = np.arange(5, dtype="float32")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    oneop.build(operator("scaled"), "openvino", folder)
    oneop.build(operator("scaled"), "onnxruntime", folder)
    return folder


def scaled(**metadata: str) -> onnx.ModelProto:
    return model(operator("scaled"), [X], {"alpha": 3.0}, metadata=metadata)


def test_every_way_to_name_operators(libraries: Path) -> None:
    op = operator("scaled")
    library = libraries / "libplain_openvino.so"
    for ops in (None, op, [op], op.defined_in, Path(op.defined_in), str(library), [library]):
        np.testing.assert_array_equal(results(compile_model(scaled(), ops), [X])[0], 3 * X)


def test_every_kind_of_model(tmp_path: Path) -> None:
    op, file = operator("scaled"), tmp_path / "model.onnx"
    onnx.save(scaled(), file)
    loaded = core(op).read_model(file)
    openvino.save_model(loaded, tmp_path / "saved.xml")
    for given in (scaled(), scaled().SerializeToString(), file, str(file), tmp_path / "saved.xml", loaded):
        np.testing.assert_array_equal(results(compile_model(given), [X])[0], 3 * X)


def test_configuration_is_openvinos() -> None:
    compiled = compile_model(scaled(), operator("scaled"), INFERENCE_NUM_THREADS=1)
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1


def test_only_what_the_model_names_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    from oneop.targets.openvino import sessions

    built: list[str] = []
    monkeypatch.setattr(sessions, "_built", lambda ops: built.extend(op.definition.name for op in ops) or [])
    with pytest.raises(RuntimeError, match=r"ortt\.Scaled"):
        compile_model(scaled())
    assert built == ["ortt::scaled"]


def test_a_model_of_another_definition(libraries: Path) -> None:
    op = operator("scaled")
    stale = scaled(**{"oneop.fingerprint.ortt::scaled": "0123456789abcdef"})
    library = libraries / "libplain_openvino.so"
    for ops, origin in ((op, op.defined_in), (None, op.defined_in), (library, str(library))):
        message = (
            "ortt::scaled: the model was exported from another definition (fingerprint 0123456789abcdef) than that of"
            f" {origin} (fingerprint {op.definition.fingerprint}). Export the model again, or use the library of the"
            " definition that it was exported from."
        )
        with pytest.raises(ExportError, match=re.escape(message)):
            compile_model(stale, ops)
    same = scaled(**{"oneop.fingerprint.ortt::scaled": op.definition.fingerprint})
    np.testing.assert_array_equal(results(compile_model(same), [X])[0], 3 * X)


def test_a_saved_model_of_another_definition(tmp_path: Path) -> None:
    """The extension knows by itself, whoever loads it: nodes carry the fingerprint."""
    op, file = operator("scaled"), tmp_path / "saved.xml"
    openvino.save_model(read(scaled(**{"oneop.fingerprint.ortt::scaled": op.definition.fingerprint}), op), file)
    own = op.definition.fingerprint
    text = file.read_text()
    assert text.count(own) == 2  # of the node, and of the ONNX file
    file.write_text(text.replace(f'oneop.fingerprint="{own}"', 'oneop.fingerprint="0123456789abcdef"'))
    message = (
        "ortt::scaled: the model was saved with another definition (fingerprint 0123456789abcdef) than that of this"
        f" library (fingerprint {own}). Build the library from that definition, or convert the model again."
    )
    with pytest.raises(RuntimeError, match=re.escape(message)):
        core(op).read_model(file)
    file.write_text(text.replace(own, "0123456789abcdef"))
    with pytest.raises(ExportError, match="ortt::scaled: the model was exported from another definition"):
        compile_model(file, op)


def test_a_library_for_another_runtime(libraries: Path) -> None:
    library = libraries / "libplain_onnxruntime.so"
    message = f"{library} is a library for ONNX Runtime, not for OpenVINO. Build one with oneop.build(..., "
    with pytest.raises(BuildError, match=re.escape(message)):
        core(library)
    other = libraries / "libplain_openvino.so"
    message = f"{other} is a library for OpenVINO, not for ONNX Runtime."
    with pytest.raises(BuildError, match=re.escape(message)):
        oneop.onnxruntime.session(scaled(), ops=other)


def test_a_library_for_another_release(libraries: Path, tmp_path: Path) -> None:
    own = openvino.__version__.partition("-")[0]
    other = tmp_path / "libplain_openvino.so"
    content = (libraries / other.name).read_bytes()
    mark = f"oneop.openvino.release={own}".encode()
    assert content.count(mark) == 1
    other.write_bytes(content.replace(mark, b"oneop.openvino.release=1999.1.0"[: len(mark)]))
    message = f"{other} was built for OpenVINO 1999.1.0; this is {own}. Build it again with this one."
    with pytest.raises(BuildError, match=re.escape(message)):
        core(other)


def test_files_that_are_no_libraries(tmp_path: Path) -> None:
    text, empty, missing = tmp_path / "text.so", tmp_path / "empty.so", tmp_path / "missing.so"
    text.write_text("hello")
    empty.touch()
    for file in (text, empty, missing):
        with pytest.raises(BuildError, match=rf"{file.name} cannot be loaded: .*Build it on this machine with oneop"):
            core(file)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(ExportError, match=r"empty\.onnx is empty\. Export the model again\."):
        compile_model(tmp_path / "empty.onnx")
    with pytest.raises(ExportError, match=r"missing\.onnx cannot be read: No such file"):
        compile_model(tmp_path / "missing.onnx")


def test_an_operator_without_kernels(tmp_path: Path) -> None:
    message = (
        "gallery::plain has no kernels, and OpenVINO does not run the function that a model carries. Export the model"
        ' with fallback="inline", or give the operator kernels=[...].'
    )
    with pytest.raises(ExportError, match=re.escape(message)):
        core(plain)

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return plain(x)

    oneop.export(Model(), (torch.ones(3),), tmp_path / "model.onnx", verbose=False)
    with pytest.raises(ExportError, match=re.escape(message)):
        compile_model(tmp_path / "model.onnx")


def test_an_unknown_node_is_openvinos_affair() -> None:
    with pytest.raises(RuntimeError, match=r"No conversion rule found for operations: ortt\.Scaled"):
        compile_model(scaled(), [])


def test_nothing_is_imported_before_it_is_needed() -> None:
    script = "import sys, oneop.targets.openvino; assert not {'openvino', 'onnx', 'onnxruntime'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
