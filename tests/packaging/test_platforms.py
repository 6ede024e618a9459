"""The platform tag, against what the linker's own tools say of the same libraries."""

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oneop
from oneop.packaging import platforms
from oneop.packaging.elf import Needs, needs_of
from oneop.packaging.platforms import platform_tag
from support.ort_models import operator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tags of Linux wheels")
MACHINE = platform.machine()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return oneop.build(operator("scaled"), "onnxruntime", tmp_path_factory.mktemp("built"))


def readelf(option: str, path: Path) -> str:
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, check=True).stdout


def test_a_library_is_read_as_readelf_reads_it(library: Path) -> None:
    paths = [library, Path(sys.executable).resolve(), *Path(oneop.__file__).parents[1].glob("nothing")]
    for path in paths:
        found = needs_of(path)
        assert found is not None
        assert found.libraries == re.findall(r"NEEDED.*\[(.*)\]", readelf("-d", path))
        assert found.versions == re.findall(r"Name: (\S+)  Flags: \S+  Version", readelf("-V", path))


def test_what_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    assert needs_of(tmp_path / "text") is None
    assert platform_tag([tmp_path / "text"]) == f"linux_{MACHINE}"


def test_the_tag_of_a_built_library(library: Path) -> None:
    found = re.fullmatch(rf"manylinux_2_(\d+)_{MACHINE}", platform_tag([library]))
    assert found is not None
    used = [int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", " ".join(needs_of(library).versions))]  # type: ignore[union-attr]
    assert int(found[1]) >= max([17, *used])
    assert platform_tag([library], any_processor=False) == f"linux_{MACHINE}"


@pytest.mark.parametrize(
    ("versions", "libraries", "provided", "tag"),
    [
        (["GLIBC_2.2.5"], ["libc.so.6"], (), "manylinux_2_17"),
        (["GLIBC_2.2.5", "GLIBC_2.34"], ["libc.so.6", "ld-linux-x86-64.so.2"], (), "manylinux_2_34"),
        (["GLIBC_2.17", "GLIBCXX_3.4.30"], ["libstdc++.so.6"], (), "manylinux_2_35"),
        (["GLIBCXX_3.4", "CXXABI_1.3.9", "GCC_3.0"], ["libstdc++.so.6", "libgcc_s.so.1"], (), "manylinux_2_24"),
        (["GLIBCXX_9.9"], ["libstdc++.so.6"], (), "linux"),
        (["GLIBC_PRIVATE"], ["libc.so.6"], (), "linux"),
        (["OPENSSL_3.0.0"], ["libc.so.6"], (), "linux"),
        ([], ["libfftw3.so.3"], (), "linux"),
        ([], ["libopenvino.so.2641"], (), "linux"),
        ([], ["libopenvino.so.2641"], ("libopenvino",), "manylinux_2_17"),
    ],
)
def test_rules(
    versions: list[str], libraries: list[str], provided: tuple[str, ...], tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platforms, "needs_of", lambda path: Needs(libraries, versions))
    assert platform_tag([Path("lib.so")], provided) == f"{tag}_{MACHINE}"
