"""Building a library: what comes out, what is a hit, and what makes a rebuild."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneop.kernels.building import Compiler, Library, Unit, build, find_compiler
from oneop.kernels.cache import Cache
from oneop.kernels.commands import traced_files
from oneop.kernels.compilers import ENVIRONMENT
from oneop.kernels.inputs import library_key


@dataclass
class Workshop:
    """A user's folder with a kernel and a header, a cache, and a compiler that notes its runs."""

    folder: Path
    cache: Path
    runs: Path
    said: list[str] = field(default_factory=list)

    @property
    def kernel(self) -> Path:
        return self.folder / "k.cpp"

    @property
    def header(self) -> Path:
        return self.folder / "value.h"

    def library(self, **changes: Any) -> Library:
        text = f'#include "{self.kernel}"\nextern "C" int call() {{ return value(); }}\n'
        plain = Library("the kernels of k.py", "k", (Unit("k", "c++", text),), inputs=(self.kernel,))
        return replace(plain, **changes)

    def build(self, **changes: Any) -> Path:
        time.sleep(0.03)  # a header that is younger than this is compiled twice, in case it was edited meanwhile
        return build(self.library(**changes), cache=self.cache, on_start=self.said.append)

    def value(self, **changes: Any) -> int:
        """Build, load and call."""
        return call(self.build(**changes))

    def compilations(self) -> int:
        return self.runs.read_text().count("compile") if self.runs.exists() else 0


def call(library: Path) -> int:
    return int(ctypes.CDLL(str(library)).call())


def write_script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    made = Workshop(tmp_path / "user", tmp_path / "cache", tmp_path / "runs")
    made.folder.mkdir()
    made.kernel.write_text('#include "value.h"\nstatic int value() { return VALUE; }\n')
    made.header.write_text("#define VALUE 1\n")
    real = shutil.which("g++") or shutil.which("clang++")
    note = f'case " $*" in *" -c "*) echo compile >>"{made.runs}";; *) echo "other $*" >>"{made.runs}";; esac'
    monkeypatch.setenv("CXX", str(write_script(tmp_path / "cxx", f'{note}\nexec "{real}" "$@"')))
    for name in ("CC", *ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    return made


def test_c_and_cpp_units_and_generated_headers_become_one_library(workshop: Workshop) -> None:
    plain = workshop.folder / "plain.c"
    plain.write_text("int from_c(int x) { int y[x]; y[0] = x; return y[0]; }\n")
    text = '#include "k.h"\n#include "sub/deep.h"\n'
    text += 'extern "C" int from_c(int);\nextern "C" int call() { return K + from_c(D); }\n'
    library = workshop.library(
        units=(Unit("k", "c++", text), Unit("plain", "c", path=plain)),
        headers={"k.h": "#define K 40\n", "sub/deep.h": "#define D 2\n"},
    )
    path = build(library, cache=workshop.cache, on_start=workshop.said.append)
    assert call(path) == 42
    assert path.name == "libk.so"
    names = f"{find_compiler('c++').name}, {find_compiler('c').name}"
    assert workshop.said == [f"building the kernels of k.py ({names})"]


def test_a_hit_runs_no_compiler_and_says_nothing(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    first = workshop.build()
    before = workshop.runs.read_text()
    workshop.said.clear()
    assert workshop.build() == first
    assert workshop.runs.read_text() == before
    assert workshop.said == []


def test_a_hit_is_quick(workshop: Workshop) -> None:
    library = workshop.library()
    build(library, cache=workshop.cache, on_start=workshop.said.append)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        build(library, cache=workshop.cache)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.005


def test_the_version_of_a_compiler_is_kept_between_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from oneop.kernels import compilers

    monkeypatch.delenv("CXX", raising=False)
    asked = []
    real = compilers._ask_version
    monkeypatch.setattr(compilers, "_ask_version", lambda *words: asked.append(words) or real(*words))
    compilers._version.cache_clear()
    first = find_compiler("c++", memory=tmp_path)
    compilers._version.cache_clear()  # as in another process
    assert find_compiler("c++", memory=tmp_path) == first
    assert len(asked) == (1 if os.uname().sysname == "Linux" else 2)


def test_nothing_but_the_entry_is_left_in_the_cache(workshop: Workshop) -> None:
    path = workshop.build()
    assert sorted(file.name for file in path.parent.iterdir()) == ["entry.json", "k.unit.cpp", "libk.so"]
    assert list((workshop.cache / "building").iterdir()) == []
    assert list((workshop.cache / "locks").iterdir()) == []
    assert stat.S_IMODE(workshop.cache.stat().st_mode) == 0o700


def test_the_default_says_one_line_on_stderr(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    library = workshop.library(note="once for each torch version, about 20 s")
    build(library, cache=workshop.cache)
    name = find_compiler("c++").name
    line = f"oneop: building the kernels of k.py ({name}; once for each torch version, about 20 s)\n"
    assert capfd.readouterr() == ("", line)
    build(library, cache=workshop.cache)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv("ONEOP_QUIET", "1")
    build(workshop.library(flags=("-DQUIET",)), cache=workshop.cache)
    assert capfd.readouterr() == ("", "")


def test_a_long_build_says_how_long_it_took(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneop.kernels.building._WORTH_SAYING_SECONDS", 0.0)
    workshop.build()
    assert workshop.said[1:] == ["built the kernels of k.py in 0 s"] or "in 1 s" in workshop.said[1]


def test_the_cache_folder_is_given_or_taken_from_the_environment(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEOP_CACHE", str(tmp_path / "elsewhere"))
    assert build(workshop.library(), on_start=workshop.said.append).is_relative_to(tmp_path / "elsewhere")
    monkeypatch.delenv("ONEOP_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert build(workshop.library(), on_start=workshop.said.append).is_relative_to(tmp_path / "home")


# What makes a rebuild


def test_an_edited_source(workshop: Workshop) -> None:
    assert workshop.value() == 1
    workshop.kernel.write_text("static int value() { return 7; }\n")
    assert workshop.value() == 7


def test_an_edited_header(workshop: Workshop) -> None:
    first = workshop.build()
    workshop.header.write_text("#define VALUE 2\n")
    second = workshop.build()
    assert (call(first), call(second)) == (1, 2)
    workshop.header.write_text("#define VALUE 1\n")
    assert workshop.build() == first
    assert workshop.compilations() == 2


def test_a_header_in_an_include_folder(workshop: Workshop, tmp_path: Path) -> None:
    folder = tmp_path / "an include $folder #1"
    folder.mkdir()
    shutil.move(workshop.header, folder / "value.h")
    assert workshop.value(include_dirs=(folder,)) == 1
    (folder / "value.h").write_text("#define VALUE 3\n")
    assert workshop.value(include_dirs=(folder,)) == 3


def test_a_header_with_the_same_size_and_time(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneop.kernels.dependencies._RACY_NS", 0)  # or a fresh file's content is compared anyway
    old = time.time_ns() - 10**12
    os.utime(workshop.header, ns=(old, old))
    assert workshop.value() == 1
    workshop.header.write_text("#define VALUE 2\n")
    os.utime(workshop.header, ns=(old, old))
    assert workshop.value() == 2


def test_a_touched_header_is_compared_by_content(workshop: Workshop) -> None:
    workshop.build()
    os.utime(workshop.header)
    workshop.build()
    assert workshop.compilations() == 1


def test_a_header_that_comes_before_the_one_that_was_read(workshop: Workshop, tmp_path: Path) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    for folder in (early / "deep", late / "deep"):
        folder.mkdir(parents=True)
    workshop.kernel.write_text('#include "deep/value.h"\nstatic int value() { return VALUE; }\n')
    (late / "deep/value.h").write_text("#define VALUE 4\n")
    assert workshop.value(include_dirs=(early, late)) == 4
    (early / "unrelated.h").write_text("")
    workshop.build(include_dirs=(early, late))
    assert workshop.compilations() == 1
    (early / "deep/value.h").write_text("#define VALUE 5\n")
    assert workshop.value(include_dirs=(early, late)) == 5


def test_a_header_that_has_include_asked_for(workshop: Workshop) -> None:
    workshop.kernel.write_text(
        '#if __has_include("fast.h")\n#include "fast.h"\n#else\n#define VALUE 1\n#endif\n'
        "static int value() { return VALUE; }\n"
    )
    assert workshop.value() == 1
    (workshop.folder / "fast.h").write_text("#define VALUE 9\n")
    assert workshop.value() == 9


def test_a_folder_of_an_installed_package_is_not_watched(workshop: Workshop, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    shutil.move(workshop.header, package / "value.h")
    first = workshop.build(system_dirs=(package,))
    (package / "value.h").write_text("#define VALUE 8\n")
    assert workshop.build(system_dirs=(package,)) == first
    assert workshop.value(system_dirs=(package,), flags=("-DPACKAGE_VERSION=2",)) == 8


def test_an_archive_that_is_linked(workshop: Workshop, tmp_path: Path) -> None:
    archive, source = tmp_path / "libother.a", tmp_path / "other.c"
    workshop.kernel.write_text('extern "C" int other();\nstatic int value() { return other(); }\n')
    for number in (1, 2):
        source.write_text(f"int other(void) {{ return {number}; }}\n")
        subprocess.run(["cc", "-fPIC", "-c", source, "-o", tmp_path / "other.o"], check=True)
        subprocess.run(["ar", "rcs", archive, tmp_path / "other.o"], check=True)
        assert workshop.value(link_flags=(f"-L{tmp_path}", "-lother")) == number


def test_what_a_linker_lists(tmp_path: Path) -> None:
    """GNU ld, old and new, and Apple's. Shared libraries are not copied, so a large one need not be read."""
    names = ["crti.o", "liba.a", "libb.a", "libtorch.so", "libm.so.6", "libsystem.tbd", "libc.dylib"]
    for name in names:
        (tmp_path / name).touch()
    lines = [str(tmp_path / name) for name in names if name not in ("liba.a", "libb.a")]
    lines += [f"({tmp_path}/liba.a)x.o", f"{tmp_path}/libb.a(y.o)", f"{tmp_path}/libb.a(z.o)", "k.o", "/not/there.a"]
    traced = traced_files("\n".join(lines).encode())
    assert [path.name for path in traced] == ["crti.o", "liba.a", "libb.a"]


@pytest.mark.parametrize("name", ["CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"])
def test_the_environment(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    workshop.build()
    monkeypatch.setenv(name, str(tmp_path))
    workshop.build()
    assert workshop.compilations() == 2


def test_another_compiler_and_another_version(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {workshop.build()}
    script = Path(os.environ["CXX"])
    text = script.read_text()
    shutil.copy(script, tmp_path / "cxx2")
    monkeypatch.setenv("CXX", str(tmp_path / "cxx2"))
    paths.add(workshop.build())
    write_script(tmp_path / "cxx2", f'[ "$1" = --version ] && echo "other 13.1" && exit 0\n{text}')
    paths.add(workshop.build())
    assert find_compiler("c++").name == "cxx2 13.1"
    monkeypatch.setenv("CXX", f"{tmp_path / 'cxx2'} -DARGUMENT")
    paths.add(workshop.build())
    assert len(paths) == 4


def test_flags(workshop: Workshop) -> None:
    workshop.kernel.write_text(
        "static int value() { return FLAG + sizeof(long[__cplusplus / 100 % 100]) / sizeof(long); }\n"
    )
    assert workshop.value(flags=("-DFLAG=100",)) == 117
    assert workshop.value(flags=("-DFLAG=200",)) == 217
    assert workshop.value(flags=("-DFLAG=200", "-std=c++20")) == 220


def test_the_machine_where_a_flag_says_native(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    native, plain = workshop.library(flags=("-march=native",)), workshop.library()
    compilers = {"c++": find_compiler("c++")}
    before = [library_key(library, compilers, {}) for library in (native, plain)]
    monkeypatch.setattr("oneop.kernels.compilers._cpu", lambda: "another machine")
    after = [library_key(library, compilers, {}) for library in (native, plain)]
    assert before[0] != after[0]
    assert before[1] == after[1]


@pytest.mark.parametrize("target", ["k.cpp", "value.h"])
def test_a_file_that_is_edited_while_it_is_compiled(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """The library that is kept under a content has been made from that content."""
    new = {"k.cpp": "static int value() { return 6; }\n", "value.h": "#define VALUE 6\n"}[target]
    (tmp_path / "new").write_text(new)
    edit = (
        f'case " $*" in *" -c "*) [ ! -e "{tmp_path}/new" ] || mv "{tmp_path}/new" "{workshop.folder / target}";; esac'
    )
    wrapper = write_script(tmp_path / "editing", f'"{os.environ["CXX"]}" "$@" || exit 1\n{edit}')
    monkeypatch.setenv("CXX", str(wrapper))
    assert workshop.value() == 6
    assert workshop.compilations() == 2
    assert workshop.value() == 6
    assert workshop.compilations() == 2


def damage_truncate(path: Path) -> None:
    os.truncate(path, 100)


def damage_one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damage_library_missing(path: Path) -> None:
    path.unlink()


def damage_entry_missing(path: Path) -> None:
    (path.parent / "entry.json").unlink()


def damage_entry_garbage(path: Path) -> None:
    (path.parent / "entry.json").write_bytes(b'{"format": 2, "files": \xff')


def damage_entry_other_shape(path: Path) -> None:
    (path.parent / "entry.json").write_text('{"format": 2, "files": [], "dependencies": 3}')


def damage_entry_is_empty_list(path: Path) -> None:
    (path.parent / "entry.json").write_text("[]")


@pytest.mark.parametrize(
    "damage",
    [
        damage_truncate,
        damage_one_bit,
        damage_library_missing,
        damage_entry_missing,
        damage_entry_garbage,
        damage_entry_other_shape,
        damage_entry_is_empty_list,
    ],
)
def test_a_damaged_entry(workshop: Workshop, damage: Callable[[Path], None]) -> None:
    path = workshop.build()
    damage(path)
    assert workshop.value() == 1
    assert workshop.compilations() == 2
    workshop.build()
    assert workshop.compilations() == 2
    assert list((workshop.cache / "building").iterdir()) == []


# Names that could go wrong


def test_a_generated_header_does_not_hide_one_of_the_systems(workshop: Workshop) -> None:
    workshop.kernel.write_text(
        '#include <ctime>\n#include "time.h"\nstatic int value() { std::time_t t = 0; return t + T; }\n'
    )
    assert workshop.value(headers={"time.h": "#define T 5\n"}) == 5


@pytest.mark.parametrize("name", ["with space", "quo'te", "dollar$#hash", "ünïcode", "back\\slash"])
def test_strange_folders(workshop: Workshop, tmp_path: Path, name: str) -> None:
    strange = Workshop(tmp_path / name, tmp_path / f"cache {name}", workshop.runs)
    strange.folder.mkdir()
    shutil.copy(workshop.kernel, strange.kernel)
    strange.header.write_text("#define VALUE 1\n")
    assert (
        strange.value(
            units=(Unit("k", "c++", path=strange.kernel), Unit("call", "c++", 'extern "C" int call() { return 1; }'))
        )
        == 1
    )
    before = strange.compilations()
    strange.build(
        units=(Unit("k", "c++", path=strange.kernel), Unit("call", "c++", 'extern "C" int call() { return 1; }'))
    )
    assert strange.compilations() == before
    strange.header.write_text("#define VALUE 2\n")
    strange.build(
        units=(Unit("k", "c++", path=strange.kernel), Unit("call", "c++", 'extern "C" int call() { return 1; }'))
    )
    assert strange.compilations() == before + 2


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
def test_a_folder_whose_name_is_not_utf8(workshop: Workshop, tmp_path: Path) -> None:
    strange = Workshop(tmp_path / os.fsdecode(b"lat\xefn"), workshop.cache, workshop.runs)
    shutil.copytree(workshop.folder, strange.folder)
    assert strange.value() == 1
    strange.header.write_text("#define VALUE 2\n")
    assert strange.value() == 2


def test_units_are_checked() -> None:
    with pytest.raises(ValueError, match="either a text or a path"):
        Unit("k", "c++")
    with pytest.raises(ValueError, match="unique"):
        Library("t", "k", (Unit("k", "c", "a"), Unit("k", "c", "b")))
    with pytest.raises(ValueError, match="absolute"):
        Library("t", "k", (Unit("k", "c", path=Path("k.c")),))


# The key: equal for equal inputs, another for each difference

COMPILER = Compiler("c", ("/usr/bin/cc",), "cc 1.0", "cc 1.0")
words = st.lists(st.text("ab -", max_size=3), max_size=2).map(tuple)
folders = st.lists(st.sampled_from([Path("/a"), Path("/a/b"), Path("/b")]), max_size=2).map(tuple)
texts = st.text("ab\n'\"", max_size=3)
units = st.builds(Unit, st.just("k"), st.sampled_from(["c", "c++"]), texts, flags=words)
inputs_of_the_key = st.fixed_dictionaries(
    {
        "stem": st.sampled_from(["k", "l"]),
        "units": st.tuples(units),
        "headers": st.dictionaries(st.sampled_from(["a.h", "b.h"]), texts),
        "include_dirs": folders,
        "system_dirs": folders,
        "flags": words,
        "link_flags": words,
        "allow_undefined": st.booleans(),
        "known": st.dictionaries(st.sampled_from(["/a.c", "/b.c"]), st.sampled_from(["0", "1"])),
        "compiler": st.builds(Compiler, st.just("c"), words, texts, st.just("cc")),
    }
)


def key_of(given_inputs: dict[str, Any]) -> str:
    rest = {name: value for name, value in given_inputs.items() if name not in ("known", "compiler")}
    return library_key(Library(title="t", **rest), {"c": given_inputs["compiler"]}, given_inputs["known"])


@settings(max_examples=300, deadline=None)
@given(inputs_of_the_key, inputs_of_the_key, st.data())
def test_keys_are_equal_exactly_where_the_inputs_are(
    one: dict[str, Any], two: dict[str, Any], data: st.DataObject
) -> None:
    changed = data.draw(st.sets(st.sampled_from(sorted(one)), max_size=2))
    mixed = {name: two[name] if name in changed else value for name, value in one.items()}
    assert (key_of(one) == key_of(mixed)) == (one == mixed)


def test_words_do_not_move_between_the_lists_of_the_key() -> None:
    unit = Unit("k", "c", "", flags=("-a",))
    folder = (Path("/a"),)
    libraries = [
        Library("t", "k", (unit,)),
        Library("t", "k", (replace(unit, flags=()),), flags=("-a",)),
        Library("t", "k", (replace(unit, flags=()),), link_flags=("-a",)),
        Library("t", "k", (replace(unit, flags=()),), include_dirs=folder),
        Library("t", "k", (replace(unit, flags=()),), system_dirs=folder),
        Library("t", "k", (replace(unit, flags=()),), headers={"a": ""}),
    ]
    assert len({library_key(library, {"c": COMPILER}, {}) for library in libraries}) == len(libraries)


def test_the_title_is_not_in_the_key(workshop: Workshop) -> None:
    assert workshop.build() == workshop.build(title="another title", note="x", explain=lambda output: None)


def test_lookup_of_nothing(tmp_path: Path) -> None:
    assert Cache(tmp_path / "none").lookup("k-1", "libk.so") is None
    assert not (tmp_path / "none").exists()
