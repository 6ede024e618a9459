"""oneop.onnxruntime.session: which libraries are registered, and models that do not belong to them."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import oneop
from oneop.errors import BuildError, ExportError
from oneop.targets.onnxruntime.models import read_model
from support.ort_models import OPERATORS, feeds, model, operator

X = np.arange(4, dtype="float32")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return oneop.build(operator("scaled"), "onnxruntime", tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two operators of two files, with functions, by oneop's exporter."""
    scaled, affine = operator("scaled"), operator("affine")

    class Layers(torch.nn.Module):
        def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
            return affine(scaled(x, alpha=3.0)[:, None].expand(-1, 3).contiguous(), shift, None, alpha=0.5)

    path = tmp_path_factory.mktemp("exported") / "layers.onnx"
    sizes = {"x": {0: torch.export.Dim("batch")}, "shift": None}
    oneop.export(Layers().eval(), (torch.ones(4), torch.ones(3)), path, dynamic_shapes=sizes)
    return path


def executed(
    session_for: Callable[..., onnxruntime.InferenceSession], path: Path, folder: Path, **options: Any
) -> set[str]:
    """The types of the nodes that ONNX Runtime ran, from its profile, after the numbers have been checked."""
    settings = onnxruntime.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(folder / "profile")
    made = session_for(path, sess_options=settings, **options)
    x, shift = np.array([1.0, -2.0, 4.0, 0.5, 3.0], "float32"), np.array([0.5, 1.0, 2.0], "float32")
    np.testing.assert_allclose(made.run(None, {"x": x, "shift": shift})[0], 1.5 * x[:, None] + shift, rtol=1e-6)
    assert [size if isinstance(size, int) else "name" for size in made.get_outputs()[0].shape] == ["name", 3]
    events = json.loads(Path(made.end_profiling()).read_text())
    return {event["args"]["op_name"] for event in events if event.get("cat") == "Node" and "op_name" in event["args"]}


def test_one_file_runs_from_its_functions_and_natively(exported: Path, tmp_path: Path) -> None:
    body = executed(onnxruntime.InferenceSession, exported, tmp_path)
    native = executed(oneop.onnxruntime.session, exported, tmp_path)
    assert {"Scaled", "Affine"} <= native
    assert not {"Scaled", "Affine"} & body


def test_only_what_is_named_runs_natively(exported: Path, library: Path, tmp_path: Path) -> None:
    for ops in (operator("scaled"), [operator("scaled")], OPERATORS / "plain.py", library, [str(library)]):
        native = executed(oneop.onnxruntime.session, exported, tmp_path, ops=ops)
        assert "Scaled" in native
        assert "Affine" not in native


@pytest.mark.parametrize("form", ["path", "text", "bytes", "proto"])
def test_forms_of_a_model(exported: Path, form: str) -> None:
    forms = {"path": exported, "text": str(exported), "bytes": exported.read_bytes(), "proto": onnx.load(exported)}
    made = oneop.onnxruntime.session(forms[form], providers=["CPUExecutionProvider"])
    assert made.run(None, {"x": X, "shift": np.ones(3, "float32")})[0].shape == (4, 3)


def test_options_may_serve_several_sessions(exported: Path) -> None:
    settings = onnxruntime.SessionOptions()
    for _ in range(2):
        made = oneop.onnxruntime.session(exported, sess_options=settings)
        assert made.run(None, {"x": X, "shift": np.ones(3, "float32")})[0].shape == (4, 3)


def test_reading_a_model_agrees_with_onnx(exported: Path) -> None:
    proto = onnx.load(exported)
    expected = {(node.domain, node.op_type) for node in proto.graph.node}
    expected |= {(node.domain, node.op_type) for function in proto.functions for node in function.node}
    found = read_model(exported)
    assert found.nodes == expected
    assert found.fingerprints == {
        name: operator(name.partition("::")[2]).definition.fingerprint for name in ("ortt::scaled", "ortt::affine")
    }


@pytest.mark.parametrize("ops", ["operator", "library"])
def test_a_model_of_another_definition(ops: str, library: Path) -> None:
    scaled = operator("scaled")
    made = model(scaled, [X], metadata={"oneop.fingerprint.ortt::scaled": "0123456789abcdef"})
    origin = scaled.defined_in if ops == "operator" else library
    with pytest.raises(ExportError) as caught:
        oneop.onnxruntime.session(made, library if ops == "library" else None)
    assert str(caught.value) == (
        f"ortt::scaled: the model was exported from another definition (fingerprint 0123456789abcdef) than that of "
        f"{origin} (fingerprint {scaled.definition.fingerprint}). Export the model again, or use the library of the "
        "definition that it was exported from."
    )


def test_the_right_fingerprint_and_none_are_accepted(library: Path) -> None:
    scaled = operator("scaled")
    for metadata in ({}, {"oneop.fingerprint.ortt::scaled": scaled.definition.fingerprint}, {"other": "value"}):
        made = oneop.onnxruntime.session(model(scaled, [X], metadata=metadata), library)
        np.testing.assert_array_equal(made.run(None, feeds([X]))[0], 2 * X)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b"not a model", "is not an ONNX model"),
        (b"\x3a\xff\x01", "not an ONNX"),
        (b"junk" * 100, "is not an ONNX model, or a damaged one"),
        (b"\x3a\x04\x0a\x02\x2a\x09", "is not an ONNX model, or a damaged one"),
    ],
)
def test_what_is_not_a_model(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ExportError, match=re.escape(str(path)) + f".*{said}"):
        oneop.onnxruntime.session(path)


def test_what_is_not_a_library(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(BuildError, match=r"text\.so cannot be loaded: .*Build it on this machine with oneop\.build\."):
        oneop.onnxruntime.session(model(operator("scaled"), [X]), tmp_path / "text.so")
    other = next(Path(onnxruntime.__file__).parent.glob("capi/*.so"))
    with pytest.raises(BuildError, match="is not a library for ONNX Runtime that oneop built"):
        oneop.onnxruntime.session(model(operator("scaled"), [X]), other)


def test_an_operator_without_kernels() -> None:
    @oneop.op("ortt::no_kernels")
    def no_kernels(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return x + 1

    with pytest.raises(BuildError, match=r"ortt::no_kernels has no kernels, so there is nothing to register for it\."):
        oneop.onnxruntime.session(model(no_kernels, [X]), no_kernels)


def test_nothing_is_imported_before_a_session_is_made() -> None:
    program = "import oneop, sys; oneop.onnxruntime.session; print({'onnx', 'onnxruntime'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def test_what_is_no_operator(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model(operator("affine"), [np.zeros((2, 3), "float32")]), path)
    with pytest.raises(BuildError, match=r"^oneop\.onnxruntime\.session takes operators, or the path of a file"):
        oneop.onnxruntime.session(path, [3])  # type: ignore[list-item]
