"""The library itself: what it links, that the adapter is clean C++, and what serves it besides Python."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scaled_linear_cpp import scaled_linear as example

import oneop
from oneop.errors import BuildError
from oneop.kernels.building import find_compiler
from oneop.kernels.inputs import INCLUDE
from oneop.targets.openvino import installation as installed
from oneop.targets.openvino import library as target
from oneop.targets.openvino.installation import installation
from oneop.targets.openvino.table import table_source
from support.ov_models import more, operator

SOURCES = Path(target.__file__).parent
GOLDEN = Path(__file__).parent / "golden" / "table.cpp"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return oneop.build(example.scaled_linear, "openvino", tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    torch.manual_seed(0)
    layer = example.ScaledLinear(4, 3, alpha=0.5, beta=2.0)
    oneop.export(layer, (torch.ones(2, 4),), path, dynamic_shapes={"x": {0: torch.export.Dim("n")}}, verbose=False)
    return path


def test_the_library_links_openvino_and_the_system_only(built: Path) -> None:
    assert built.name == "libscaled_linear_openvino.so"
    if sys.platform != "linux":
        return
    listed = subprocess.run(["readelf", "-d", built], capture_output=True, text=True, check=True).stdout
    needed = {name.split(".")[0] for name in re.findall(r"NEEDED.*\[(.*)\]", listed)}
    assert needed <= {"libopenvino", "libopenvino_onnx_frontend", "libtbb"} | {
        *("libstdc++", "libm", "libgcc_s", "libc", "ld-linux-x86-64", "ld-linux-aarch64", "libpthread", "libdl")
    }
    exports = subprocess.run(["nm", "-D", "--defined-only", built], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].partition("@")[0] for line in exports.splitlines()}
    assert names == {"create_extensions", "oneop_library_v1", "oneop_openvino_version"}


@pytest.mark.parametrize("source", ["adapter.cpp", "attributes.cpp", "threads.cpp"])
def test_the_adapter_compiles_without_warnings(source: str, tmp_path: Path) -> None:
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", "-DONEOP_OPENVINO_TBB"]
    flags += installation().flags
    folders = ["-I", str(INCLUDE), "-isystem", str(installation().include)]
    subprocess.run([*find_compiler("c++").command, *flags, *folders, SOURCES / source], check=True)


def test_the_generated_table() -> None:
    """Golden: a reviewer sees what generation changes. ONEOP_REWRITE_GOLDEN=1 writes it."""
    definitions = [operator("attributes").definition, more("chain").definition, operator("totals").definition]
    text = table_source(definitions, "three operators")
    if os.environ.get("ONEOP_REWRITE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_a_program_in_cpp(built: Path, exported: Path, tmp_path: Path) -> None:
    found = installation()
    program = tmp_path / "serve"
    source = Path(__file__).with_name("serve.cpp")
    subprocess.run(
        [
            *find_compiler("c++").command,
            *("-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-isystem", found.include, source),
            *("-o", program, *found.libraries, f"-Wl,-rpath,{found.folder}"),
        ],
        check=True,
    )
    x = np.arange(12, dtype="float32").reshape(3, 4) / 7
    command = [program, built, exported, "3", "4"]
    done = subprocess.run(command, input=x.tobytes(), capture_output=True, check=True)
    torch.manual_seed(0)
    layer = example.ScaledLinear(4, 3, alpha=0.5, beta=2.0)
    exact = layer(torch.from_numpy(x)).detach().numpy().ravel()
    np.testing.assert_allclose([float(line) for line in done.stdout.split()], exact, rtol=1e-4, atol=1e-5)

    wrong = subprocess.run([program, built, exported, "3", "5"], input=bytes(60), capture_output=True, text=False)
    assert wrong.returncode == 1
    assert b"demo::scaled_linear: " in wrong.stderr or b"shape" in wrong.stderr

    without = subprocess.run([program, built], capture_output=True, text=True)
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr == "usage: serve EXTENSION MODEL ROWS COLUMNS < FLOATS\n"


def test_nothing_is_built_where_openvino_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installed.importlib.util, "find_spec", lambda name: None)
    message = "openvino: OpenVINO is not installed. Install it: pip install 'oneop[openvino]'."
    with pytest.raises(BuildError, match=re.escape(message)):
        oneop.build(example.scaled_linear, "openvino", tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_built_without_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "openvino").mkdir()
    monkeypatch.setattr(
        installed.importlib.util,
        "find_spec",
        lambda name: type("Spec", (), {"submodule_search_locations": [str(tmp_path / "openvino")]})(),
    )
    message = f"openvino: {tmp_path}/openvino holds no C++ headers and libraries to build an extension with."
    with pytest.raises(BuildError, match=re.escape(message)):
        installation()


def test_an_operator_without_kernels(tmp_path: Path) -> None:
    from gallery.gallery import plain

    with pytest.raises(BuildError, match="openvino: no kernel to build in gallery::plain"):
        oneop.build(plain, "openvino", tmp_path)
