"""The wheel: what is in it, that it is the same twice, and that it serves where there is neither oneop nor torch."""

import base64
import csv
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from email.parser import BytesParser
from pathlib import Path

import numpy as np
import onnx
import openvino
import pytest
import torch
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from scaled_linear_cpp import scaled_linear as example
from typer.testing import CliRunner

import oneop
from oneop.cli import app
from oneop.errors import BuildError
from oneop.packaging import package
from oneop.packaging.wheels import write_file
from support.ort_models import OPERATORS, model, operator

PLAIN = OPERATORS / "plain.py"
X = np.arange(5, dtype="float32")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package(PLAIN, tmp_path_factory.mktemp("dist"), name="scaled-ops", version="1.2")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For two runtimes, with a license of its own."""
    folder = tmp_path_factory.mktemp("dist")
    (folder / "COPYING").write_text("Mine.")
    done = CliRunner().invoke(
        app,
        [
            *("package", str(PLAIN), "--target", "onnxruntime", "--target", "openvino", "--name", "Both.Ops"),
            *("--license", str(folder / "COPYING"), "--output", str(folder / "out")),
        ],
    )
    assert done.exit_code == 0, done.output
    return Path(done.stdout.strip())


def metadata_of(path: Path) -> "dict[str, list[str]]":
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        parsed = BytesParser().parsebytes(archive.read(name))
    return {key: parsed.get_all(key) or [] for key in parsed}


def installed(path: Path, folder: Path) -> Path:
    """pip looks at nothing but the wheel."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", folder, path]
    subprocess.run(pip, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return folder


def run_alone(script: str, folder: Path, *runtimes: str) -> str:
    """Runs a script where Python finds its own library, the installed package and these, and no program is found."""
    only = folder / "only"
    only.mkdir(exist_ok=True)
    for name in (*runtimes, "numpy", "numpy.libs"):
        spec = None if "." in name else importlib.util.find_spec(name)
        place = Path(np.__file__).parents[1] / name if spec is None else Path(spec.origin or "").parent
        if place.is_dir() and not (only / name).exists():
            (only / name).symlink_to(place)
    start = f"import sys; sys.path += {[str(folder), str(only)]!r}\n"
    check = (
        "import importlib.util, shutil\n"
        "assert not any(map(importlib.util.find_spec, ('torch', 'oneop', 'onnx', 'jinja2')))\n"
        "assert not any(map(shutil.which, ('g++', 'gcc', 'cc', 'c++', 'clang')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start + check + script],
        env={"PATH": str(folder / "nowhere"), "HOME": str(folder)},
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_that_pip_takes(wheel: Path) -> None:
    name, version, _, tags = parse_wheel_filename(wheel.name)
    assert (name, str(version)) == ("scaled-ops", "1.2")
    assert tags <= set(sys_tags())
    found = metadata_of(wheel)
    assert found["Name"] == ["scaled-ops"]
    assert found["Requires-Dist"] == ["onnxruntime>=1.20"]
    assert found["License-File"] == ["LICENSE-oneop"]
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            "scaled_ops/__init__.py",
            "scaled_ops/lib/libplain_onnxruntime.so",
            "scaled_ops/py.typed",
            "scaled_ops-1.2.dist-info/METADATA",
            "scaled_ops-1.2.dist-info/WHEEL",
            "scaled_ops-1.2.dist-info/licenses/LICENSE-oneop",
            "scaled_ops-1.2.dist-info/RECORD",
        ]
        assert b"Apache License" in archive.read("scaled_ops-1.2.dist-info/licenses/LICENSE-oneop")
        assert b"Root-Is-Purelib: false" in archive.read("scaled_ops-1.2.dist-info/WHEEL")


def test_every_file_is_recorded(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        rows = list(csv.reader(archive.read("scaled_ops-1.2.dist-info/RECORD").decode().splitlines()))
        assert {row[0] for row in rows} == set(archive.namelist())
        for name, digest, size in rows[:-1]:
            content = archive.read(name)
            own = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={own}", str(len(content)))
        assert rows[-1] == ["scaled_ops-1.2.dist-info/RECORD", "", ""]


def test_it_serves_without_torch_oneop_and_a_compiler(tmp_path: Path) -> None:
    """The example, from training to the service."""
    torch.manual_seed(0)
    layer = example.ScaledLinear(4, 3, alpha=0.5, beta=2.0)
    x = torch.randn(3, 4)
    shapes = {"x": {0: torch.export.Dim("n")}}
    oneop.export(layer, (x,), tmp_path / "model.onnx", dynamic_shapes=shapes, fallback="none", verbose=False)
    np.save(tmp_path / "x.npy", x.numpy())
    folder = installed(package(example.__file__, tmp_path / "dist"), tmp_path / "installed")
    script = """
import numpy, onnxruntime, pathlib, scaled_linear_ops as ops
model = pathlib.Path("../model.onnx")
ops.check(model)
ops.check(model.read_bytes())
assert all(path.is_file() for path in ops.libraries()) and ops.libraries() == ops.libraries("onnxruntime")
for options in (ops.session_options(), ops.session_options(onnxruntime.SessionOptions())):
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    numpy.save("../y.npy", session.run(None, {session.get_inputs()[0].name: numpy.load("../x.npy")})[0])
print(sorted(ops.FINGERPRINTS), ops.__version__)
"""
    said = run_alone(script, folder, "onnxruntime")
    assert said == "['demo::scaled_linear'] 0.1.0\n"
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), layer(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_two_runtimes(both: Path, tmp_path: Path) -> None:
    assert both.name.startswith("both_ops-0.1.0-py3-none-")
    found = metadata_of(both)
    release = openvino.__version__.partition("-")[0]
    assert found["Requires-Dist"] == ["onnxruntime>=1.20", f"openvino=={release}"]
    assert found["License-File"] == ["LICENSE-oneop", "COPYING"]
    folder = installed(both, tmp_path / "installed")
    onnx.save(model(operator("scaled"), [X], {"alpha": 3.0}), tmp_path / "model.onnx")
    script = """
import numpy, onnxruntime, openvino, both_ops
x = numpy.arange(5, dtype="float32")
session = onnxruntime.InferenceSession("../model.onnx", both_ops.session_options())
assert session.run(None, {"x0": x})[0].tolist() == (3 * x).tolist()
core = openvino.Core()
for extension in both_ops.extensions():
    core.add_extension(extension)
assert core.compile_model("../model.onnx", "CPU")(x)[0].tolist() == (3 * x).tolist()
try:
    both_ops.libraries("tensorrt")
except ValueError as error:
    print(error)
"""
    said = run_alone(script, folder, "onnxruntime", "openvino")
    assert said == (
        "both_ops holds no library for 'tensorrt', only for onnxruntime, openvino. Make the package again, with"
        " --target.\n"
    )


def test_a_model_of_another_definition(wheel: Path, tmp_path: Path) -> None:
    folder = installed(wheel, tmp_path / "installed")
    own = operator("scaled").definition.fingerprint
    metadata = {"oneop.fingerprint.ortt::scaled": "0123456789abcdef"}
    onnx.save(model(operator("scaled"), [X], metadata=metadata), tmp_path / "stale.onnx")
    onnx.save(model(operator("scaled"), [X], metadata={"oneop.fingerprint.ortt::scaled": own}), tmp_path / "same.onnx")
    script = """
import scaled_ops
scaled_ops.check("../same.onnx")
try:
    scaled_ops.check("../stale.onnx")
except ValueError as error:
    print(error)
"""
    assert run_alone(script, folder) == (
        "ortt::scaled: the model was exported from another definition (fingerprint 0123456789abcdef) than the kernels"
        f" of scaled_ops 1.2 (fingerprint {own}). Export the model again, or install the package of the definition that"
        " it was exported from.\n"
    )


def test_the_module_is_typed(both: Path, tmp_path: Path) -> None:
    folder = installed(both, tmp_path / "installed")
    assert (folder / "both_ops" / "py.typed").is_file()
    check = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir", tmp_path / "cache"]
    done = subprocess.run([*check, folder / "both_ops" / "__init__.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    compile((folder / "both_ops" / "__init__.py").read_text(), "both_ops", "exec", dont_inherit=True)


def test_the_same_bytes_twice(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another cache, in which the library is built again, and at another time."""
    monkeypatch.setenv("ONEOP_CACHE", str(tmp_path / "cache"))
    again = package(PLAIN, tmp_path / "dist", name="scaled-ops", version="1.2")
    assert list((tmp_path / "cache").iterdir())
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    later = package(PLAIN, tmp_path / "later", name="scaled-ops", version="1.2")
    assert zipfile.ZipFile(later).infolist()[0].date_time == (2023, 11, 14, 22, 13, 20)
    assert later.read_bytes() != wheel.read_bytes()


# ---- What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("-ops", "'-ops' is not a name for a package"),
        ("my ops", "'my ops' is not a name for a package"),
        ("", "'' is not a name for a package"),
        ("9ops", "`import 9ops` is not Python. Pass another --name than '9ops'."),
        ("class", "`import class` is not Python."),
        (
            "torch",
            "a package 'torch' would hide the module torch of that name. Pass another --name, such as",
        ),
        ("JSON", "a package 'JSON' would hide the module json of that name."),
    ],
)
def test_names(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=re.escape(said)):
        package(PLAIN, tmp_path / "dist", name=name)
    assert not list(tmp_path.iterdir())


def test_versions(tmp_path: Path) -> None:
    message = "'one' is not a version of a Python package. Pass a --version such as 1.0 or 2.1.post1."
    with pytest.raises(BuildError, match=re.escape(message)):
        package(PLAIN, tmp_path, version="one")


def test_targets(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="'caffe' is not a target that oneop builds for"):
        package(PLAIN, tmp_path, targets=["caffe"])
    with pytest.raises(BuildError, match=r"targets are \['openvino', 'openvino'\]; a package needs one or more, each"):
        package(PLAIN, tmp_path, targets=["openvino", "openvino"])
    assert not list(tmp_path.iterdir())


def test_operators_without_kernels(tmp_path: Path) -> None:
    file = tmp_path / "no_kernels.py"
    file.write_text(
        "import oneop\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        '@oneop.op("packaged::same")\ndef same(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:\n    return x\n'
    )
    with pytest.raises(BuildError, match="onnxruntime: no kernel to build in packaged::same"):
        package(file, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_a_license_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"the license .*none cannot be read: No such file or directory\. Pass --li"):
        package(PLAIN, tmp_path, license_file=tmp_path / "none")


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(BuildError, match=r"\.whl cannot be written to .*file, which is a file\. Name a folder\."):
        package(PLAIN, file)
    with pytest.raises(BuildError, match=r"\.whl cannot be written to /proc/none: .*\. Name a folder that can be"):
        package(PLAIN, "/proc/none")


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(BuildError, match=r"x\.whl cannot be written to .*: No space left on device\. Name a folder"):
        write_file(tmp_path / "dist" / "x.whl", b"content")
    assert not list((tmp_path / "dist").iterdir())


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    for arguments, said in [
        (["--triton", str(tmp_path)], "--triton needs --model MODEL.onnx, the model that the server will run."),
        (["--model", "m.onnx"], "--model is for --triton DIR, the model repository to write it to."),
        (["--max-batch-size", "4"], "--max-batch-size and --mount are for --triton DIR. Leave them out, or pass it"),
        (["--mount", "/m"], "--max-batch-size and --mount are for --triton DIR. Leave them out, or pass it with"),
        (["--output", ""], "--output is empty, and has to name a folder."),
        (["--triton", "t", "--model", "m", "--target", "openvino"], "--triton is for onnxruntime, and --target is op"),
        (["--triton", "t", "--model", "m", "--version", "1"], "--version and --license are for wheels."),
        (["--name", "my ops"], "'my ops' is not a name for a package"),
    ]:
        done = CliRunner().invoke(app, ["package", str(PLAIN), *arguments])
        assert done.exit_code == 1
        assert said in done.stderr
