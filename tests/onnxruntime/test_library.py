"""The built file: what it links and exports, how it is written, and what an old runtime is told."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import oneop
from oneop.errors import BuildError
from oneop.kernels.building import find_compiler
from oneop.targets.onnxruntime.library import build_library
from support.ort_models import OPERATORS, operator


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return oneop.build(
        OPERATORS / "plain.py", "onnxruntime", tmp_path_factory.mktemp("built") / "in" / "a" / "new folder"
    )


def test_the_folder_is_made_and_holds_the_library_alone(library: Path) -> None:
    assert library.name == "libplain_onnxruntime.so"
    assert [path.name for path in library.parent.iterdir()] == [library.name]


@pytest.mark.skipif(sys.platform != "linux", reason="readelf reads ELF files")
def test_it_links_the_runtime_of_c_and_cpp_only_and_exports_two_functions(tmp_path: Path) -> None:
    for file in ("plain.py", "many.py"):
        built = oneop.build(OPERATORS / file, "onnxruntime", tmp_path)
        dynamic = subprocess.run(["readelf", "-d", built], capture_output=True, text=True, check=True).stdout
        needed = {name.split(".")[0] for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic)}
        assert needed <= {"libc", "libm", "libstdc++", "libgcc_s", "ld-linux-x86-64", "ld-linux-aarch64", "libpthread"}
        table = subprocess.run(["nm", "-D", built], capture_output=True, text=True, check=True).stdout
        exported = set(re.findall(r" [TDBRVW] (\w+)$", table, re.M)) - set(re.findall(r" [wW] (_\w+)$", table, re.M))
        assert exported == {"RegisterCustomOps", "oneop_library_v1"}
        assert not re.search(r"Py|torch|c10|Ort", " ".join(re.findall(r" U (\S+)", table)))


def test_building_again_replaces_the_file_in_one_step(library: Path) -> None:
    before = library.stat().st_ino
    assert oneop.build(operator("scaled"), "onnxruntime", library.parent) == library
    assert library.stat().st_ino != before  # a session that has the old file open keeps it
    assert [path.name for path in library.parent.iterdir()] == [library.name]


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(BuildError) as caught:
        oneop.build(operator("scaled"), "onnxruntime", tmp_path / "taken")
    assert str(caught.value) == (
        f"libplain_onnxruntime.so cannot be written to {tmp_path / 'taken'}, which is a file. Name a folder."
    )


def test_nothing_to_build(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"there is nothing to build for onnxruntime: no operator here has kernels\."):
        build_library([], tmp_path)


@pytest.fixture(scope="module")
def fake_runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("fake") / "fake_runtime"
    source = Path(__file__).with_name("fake_runtime.c")
    flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    subprocess.run([*find_compiler("c").command, *flags, source, "-o", program, "-ldl"], check=True)
    return program


@pytest.mark.parametrize(("release", "newest"), [("1.16.3", 16), ("1.15.0", 15), ("1.21.0", 1), ("unheard of", 3)])
def test_a_runtime_that_is_too_old(fake_runtime: Path, library: Path, release: str, newest: int) -> None:
    run = subprocess.run([fake_runtime, library, release, str(newest)], capture_output=True, text=True)
    assert run.returncode == 0, run
    assert run.stdout.endswith(
        f"status 9: oneop's library of ortt::scaled needs ONNX Runtime 1.17 or newer; this is {release}. Install a "
        "newer onnxruntime.\nrefused\n"
    )
    if release.startswith("1.1"):  # runtimes complain on stderr when asked for a version they lack
        assert "asked for" not in run.stdout


def test_a_runtime_without_any_version_of_the_interface(fake_runtime: Path, library: Path) -> None:
    """No status can be made then: the message goes where it can be read."""
    run = subprocess.run([fake_runtime, library, "0.1", "0"], capture_output=True, text=True)
    assert run.returncode == 0
    assert "needs ONNX Runtime 1.17 or newer; this is 0.1. Install a newer onnxruntime.\n" in run.stderr
