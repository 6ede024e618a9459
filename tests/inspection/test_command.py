"""oneop inspect as its user meets it: what is printed, and the exit status."""

import json
from pathlib import Path

import onnx
import pytest
from inspection import files
from inspection.files import graph, model, saved
from typer.testing import CliRunner

from oneop.cli import app


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def run(*arguments: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 or done.stdout else done.stderr


SHOWN = """\
bare.onnx: 5 nodes, opset 20, IR version 10, by pytorch {producer}

operator      nodes  ONNX Runtime    OpenVINO      TensorRT    
insp::Affine  3      runs by kernel  does not run  does not run
insp::Twice   1      does not run    does not run  does not run
"""  # noqa: W291

REMEDIES = """
ONNX Runtime
  insp::Affine: libaffine_onnxruntime.so
  insp::Twice: no kernel, and no function in the file
      insp::twice in {file} has no kernels: give it kernels=[...], and register the library; or oneop inspect \
bare.onnx --add-functions {file} --output NEW.onnx

OpenVINO
"""


def test_what_is_shown(bare: Path, exported: Path, library: Path) -> None:
    Path("bare.onnx").write_bytes(bare.read_bytes())
    told = run("bare.onnx", "--library", library, "--definitions", files.OPERATORS, status=1)
    producer = onnx.load(bare).producer_version
    assert told.startswith(SHOWN.format(producer=producer))
    assert REMEDIES.format(file=files.OPERATORS) in told
    nodes = told[told.index("node ") : told.index("\nONNX Runtime")]
    assert "alpha = 0.5" in nodes
    assert "mode = 'other'" in nodes
    assert "x: float32[rows, 3]" in nodes
    assert "absent" in run(exported)
    assert told.replace("\n", " ").count("Does not fit: insp::twice is in none of the libraries given.") == 1


def test_nothing_to_say() -> None:
    saved(Path("m.onnx"), model(graph([onnx.helper.make_node("Relu", ["x"], ["y"])]), []))
    assert (
        run("m.onnx") == "m.onnx: 1 node, opset 18, IR version 10\n"
        "Every node is of ONNX's standard domain: any runtime that has this opset runs it, without oneop.\n"
    )


def test_json(exported: Path, library: Path) -> None:
    told = json.loads(run(exported, "--library", library, "--json", status=1))
    assert told["file"] == str(exported)
    assert set(told["fingerprints"]) == {"insp::affine", "insp::twice"}
    affine = next(item for item in told["operators"] if item["type"] == "Affine")
    assert (affine["operator"], affine["count"], affine["has_function"], affine["is_called"]) == (
        "insp::affine",
        4,
        True,
        True,
    )
    assert affine["fingerprint"] == told["fingerprints"]["insp::affine"]
    assert affine["runtimes"]["onnxruntime"] == {
        "status": "kernel",
        "because": "libaffine_onnxruntime.so",
        "remedy": None,
    }
    assert affine["nodes"][1]["inputs"][1] == {"name": "shift", "type": "float32[3]"}
    assert told["faults"] == ["insp::twice is in none of the libraries given. Build one from the file that defines it."]


def test_rewriting(exported: Path, bare: Path) -> None:
    told = run(exported, "--inline", "--output", "inlined.onnx")
    assert told.startswith("inlined.onnx: written, with the functions inlined of insp::")
    assert "Every node is of ONNX's standard domain" in told
    told = run(exported, "--strip", "--only", "insp::Affine", "--output", "stripped.onnx")
    assert told.startswith("stripped.onnx: written, without the functions of insp::Affine\n\nstripped.onnx: ")
    told = run(bare, "--add-functions", files.OPERATORS, "-o", "added.onnx")
    assert told.startswith("added.onnx: written, with functions added for insp::affine, insp::twice\n")
    assert "runs by function body" in told
    assert json.loads(run("stripped.onnx", "--inline", "-o", "both.onnx", "--json"))["file"] == "both.onnx"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--strip"], "--strip writes a new file: say where with --output NEW.onnx."),
        (["--inline", "--output", ""], "--inline writes a new file: say where with --output NEW.onnx."),
        (
            ["--strip", "--inline", "-o", "x"],
            "--strip and --inline are two changes. Make one, and then the other of the",
        ),
        (
            ["--output", "x"],
            "--output is for a rewritten file: give --strip, --inline or --add-functions FILE with it.",
        ),
        (["--only", "x"], "--only limits --strip and --inline; give one of them with it."),
        (["--definitions", "."], ".: this is a folder. Give the path of a Python file in it that defines operators."),
        (
            ["--definitions", "no.py"],
            "no.py: there is no such file. Give the path of a Python file that defines operat",
        ),
        (["--library", "no.so"], "no.so: there is no such file. Give the path of a library that oneop build wrote."),
        (["--strip", "-o", "no/x"], "oneop inspect: the folder no does not exist. Create it, or give another path."),
    ],
)
def test_mistakes(exported: Path, options: list[str], said: str) -> None:
    assert run(exported, *options, status=1).startswith(f"oneop: {said}")


def test_no_file() -> None:
    assert (
        run("no.onnx", status=1)
        == "oneop: no.onnx cannot be read: No such file or directory. Give the path of an ONNX model.\n"
    )
    assert run(".", status=1) == "oneop: . is a folder. Give the path of an ONNX model.\n"


def test_a_definition_that_does_not_import(exported: Path) -> None:
    Path("broken.py").write_text("raise RuntimeError('no')\n")
    assert run(exported, "--definitions", "broken.py", status=1).startswith(
        "oneop: broken.py does not import: RuntimeErr"
    )
