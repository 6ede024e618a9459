"""What a person reads when a library cannot be built."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from oneop.errors import BuildError
from oneop.kernels import compilers
from oneop.kernels.building import Library, Unit, build, find_compiler

GOOD = Unit("k", "c", "int call(void) { return 1; }\n")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CC", "CXX", "ONEOP_BUILD_TIMEOUT", *compilers.ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)


def library(*units: Unit, **more: object) -> Library:
    return Library("the kernels of k.py", "k", units or (GOOD,), **more)  # type: ignore[arg-type]


def silent(message: str) -> None:
    pass


def failure(cache: Path, *units: Unit, **more: object) -> str:
    with pytest.raises(BuildError) as caught:
        build(library(*units, **more), cache=cache, on_start=silent)
    return str(caught.value)


def log_of(cache: Path) -> Path:
    (log,) = (cache / "failed").iterdir()
    return log


def script(path: Path, text: str) -> str:
    path.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo "fake 1.2.3"; exit 0;; esac\n{text}\n')
    path.chmod(0o755)
    return str(path)


# Compilers


@pytest.mark.parametrize(
    ("language", "message"),
    [
        (
            "c",
            "no C compiler was found (gcc, clang, cc are not on PATH). Install one (Debian or Ubuntu: `apt-get install "
            "gcc`; Fedora: `dnf install gcc`; macOS: `xcode-select --install`), or set $CC to the one to use.",
        ),
        (
            "c++",
            "no C++ compiler was found (g++, clang++, c++ are not on PATH). Install one (Debian or Ubuntu: `apt-get "
            "install g++`; Fedora: `dnf install gcc-c++`; macOS: `xcode-select --install`), or set $CXX to the one "
            "to use.",
        ),
    ],
)
def test_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: compilers.Language, message: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError) as caught:
        find_compiler(language)
    assert str(caught.value) == message
    assert failure(tmp_path / "cache", Unit("k", language, "")) == message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "gcc-from-mars -O1",
            "$CC is `gcc-from-mars -O1`, but there is no program `gcc-from-mars`. Set $CC to a C compiler, or unset it "
            "to use the system's.",
        ),
        ("cc 'x", "$CC is `cc 'x`, which does not read as a command: No closing quotation. Correct its quotes."),
        (
            "/bin/false",
            "$CC is `/bin/false`, but `/bin/false --version` fails, so it is no usable compiler. Set $CC to a C "
            "compiler, or unset it to use the system's.",
        ),
    ],
)
def test_a_variable_that_names_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, message: str
) -> None:
    monkeypatch.setenv("CC", given.replace("/bin/false", shutil.which("false") or ""))
    assert failure(tmp_path).replace(shutil.which("false") or "", "/bin/false") == message


def test_a_variable_may_hold_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -DVALUE=3")
    assert find_compiler("c").command[1:] == ("-DVALUE=3",)
    build(library(Unit("k", "c", "int call(void) { return VALUE; }\n")), cache=tmp_path, on_start=silent)


def test_a_program_that_is_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "cc", "exit 0"))
    assert failure(tmp_path / "cache") == (
        f"cannot build the kernels of k.py: `{tmp_path}/cc` reports success but wrote no k.o, so it is no usable "
        "compiler. Set $CXX and $CC to compilers, or unset them to use the system's."
    )


def test_a_compiler_that_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "cc", "exit 0"))
    monkeypatch.setattr("oneop.kernels.building.say", lambda message: (tmp_path / "cc").unlink())
    with pytest.raises(BuildError) as caught:
        build(library(), cache=tmp_path / "cache")
    assert str(caught.value) == (
        f"cannot build the kernels of k.py: the compiler does not start ({tmp_path}/cc: No such file or directory). "
        "Set $CXX and $CC to compilers that run."
    )


# Sources


def test_a_source_that_does_not_compile(tmp_path: Path) -> None:
    source = tmp_path / "user" / "k.cpp"
    source.parent.mkdir()
    source.write_text("template <class T> void k(T a) {\n  a.missing = 1;\n}\n")
    unit = Unit("k", "c++", f'#include "args.h"\n#include "{source}"\ntemplate void k<args>(args);\n')
    text = failure(tmp_path / "cache", unit, inputs=(source,), headers={"args.h": "struct args {};\n"})
    lines = text.splitlines()
    assert lines[0] == f"cannot build the kernels of k.py: {find_compiler('c++').name} refuses the source."
    assert next(line for line in lines[1:] if " error: " in line).startswith(f"{source}:2:5: error: ")
    assert "missing" in text
    assert lines[-1] == f"Correct the source and run again. All that it printed: {log_of(tmp_path / 'cache')}"
    assert "k.unit.cpp" not in text
    log = log_of(tmp_path / "cache").read_text()
    assert log.startswith("$ ")
    assert "k.unit.cpp" in log


@pytest.mark.parametrize(
    ("headers", "line"),
    [
        (["right.h", "dropped.h"], "The generated headers here are: dropped.h, right.h."),
        (["right.h"], "The generated header here is: right.h."),
    ],
)
def test_a_header_that_is_not_there(tmp_path: Path, headers: list[str], line: str) -> None:
    """The message names those that there are for this source, and not what other sources of the library include."""
    source = tmp_path / "user" / "faulty.cpp"
    source.parent.mkdir()
    source.write_text('#include "faulty.h"\n')
    text = "".join(f'#include "{name}"\n' for name in [*headers, source])
    written = {**dict.fromkeys(headers, ""), "adapter.h": ""}
    lines = failure(tmp_path / "cache", Unit("k", "c++", text), inputs=(source,), headers=written).splitlines()
    assert lines[1].startswith(f"{source}:1:10: fatal error: ")
    assert "faulty.h" in lines[1]
    assert lines[-2] == line
    assert lines[-1].startswith("Correct the source and run again. ")
    source.write_text("#error no header\n")
    assert line not in failure(tmp_path / "cache", Unit("k", "c++", text), inputs=(source,), headers=written)


def test_the_hint_of_a_library_comes_first(tmp_path: Path) -> None:
    seen = []

    def explain(output: str) -> str:
        seen.append(output)
        return "do this."

    lines = failure(tmp_path, Unit("k", "c", "nonsense\n"), explain=explain).splitlines()
    assert lines[1] == "do this."
    assert "error:" in seen[0]
    text = failure(tmp_path, Unit("k", "c", "int f(void); int call(void) { return f(); }\n"), explain=explain)
    assert text.startswith("cannot build the kernels of k.py: do this. All that it printed: ")


def test_several_units_that_do_not_compile(tmp_path: Path) -> None:
    text = failure(tmp_path, *(Unit(name, "c", f"int {name} = wrong_{name};\n") for name in "ab"))
    assert "wrong_a" in text


def test_a_source_that_is_missing_or_unreadable(tmp_path: Path) -> None:
    gone = tmp_path / "gone.c"
    assert failure(tmp_path, Unit("k", "c", path=gone)) == (
        f"cannot build the kernels of k.py: {gone} does not exist. Correct the name in `kernels=`, or write the file."
    )
    gone.mkdir()
    assert failure(tmp_path, GOOD, inputs=(gone,)) == (
        f"cannot build the kernels of k.py: {gone} cannot be read (Is a directory). Make it a readable file."
    )


def test_undefined_symbols(tmp_path: Path) -> None:
    text = 'int missing(int); namespace n { int too(); }\nextern "C" int call() { return missing(1) + n::too(); }\n'
    message = failure(tmp_path, Unit("k", "c++", text))
    assert message == (
        "cannot build the kernels of k.py: nothing defines `missing(int)`, `n::too()`. Define it in one of the "
        f"sources, add the source that does to `kernels=`, or the library to `libraries=`. All that it printed: "
        f"{log_of(tmp_path)}"
    )
    build(library(Unit("k", "c++", text), allow_undefined=True), cache=tmp_path, on_start=silent)


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    lines = failure(tmp_path, GOOD, link_flags=("-lfrom_mars",)).splitlines()
    assert lines[0] == "cannot build the kernels of k.py: the linker fails."
    assert "from_mars" in lines[1]
    assert lines[-1] == f"Correct the libraries and flags and run again. All that it printed: {log_of(tmp_path)}"


def test_output_that_is_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "cc", r"printf 'k.c:1:1: error: \377\376 caf\351\n' >&2; exit 1"))
    assert "error: \ufffd\ufffd caf\ufffd" in failure(tmp_path / "cache")
    assert b"caf\xe9" in log_of(tmp_path / "cache").read_bytes()


def test_a_compiler_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "cc", "exit 3"))
    assert "\nIt ended with status 3 and said nothing.\n" in failure(tmp_path / "cache")


def test_old_logs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneop.kernels.cache._KEPT_LOGS", 2)
    monkeypatch.setenv("CC", script(tmp_path / "cc", "exit 3"))
    for number in range(4):
        failure(tmp_path / "cache", Unit("k", "c", f"/* {number} */"))
    assert len(list((tmp_path / "cache" / "failed").iterdir())) == 2


# Killed, or too slow


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("kill -9 $$", "9; usually the machine ran out of memory"),
        (
            "echo 'gcc: fatal error: Killed signal terminated program cc1'; exit 1",
            "9; usually the machine ran out of memory",
        ),
        ("kill -SEGV $$", f"11 ({signal.strsignal(signal.SIGSEGV)})"),
    ],
)
def test_a_compiler_that_is_killed_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, reason: str
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv(
        "CC", script(tmp_path / "cc", f'[ -e "{tmp_path}/healthy" ] && exec cc "$@"\necho half >k.o; {line}')
    )
    assert failure(cache) == (
        f"cannot build the kernels of k.py: the compiler was killed by signal {reason}. Nothing half-written is kept: "
        f"run it again, with fewer programs beside it if memory is short. All that it printed: {log_of(cache)}"
    )
    assert list((cache / "building").iterdir()) == []
    assert not (cache / "entries").exists()
    (tmp_path / "healthy").touch()
    assert build(library(), cache=cache, on_start=silent).exists()


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan"])
def test_a_bound_that_is_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ONEOP_BUILD_TIMEOUT", value)
    assert failure(tmp_path) == (
        f"ONEOP_BUILD_TIMEOUT is `{value}`; it has to be a number of seconds above 0, such as 600."
    )


# The cache folder


def folder_message(cache: Path, reason: str) -> str:
    return (
        f"cannot build the kernels of k.py: the cache folder {cache} cannot be used ({reason}). Make it writable and "
        "make room in it, or set ONEOP_CACHE to another folder."
    )


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert failure(file) == folder_message(file, f"{file} needs a folder where there is a file")
    assert failure(file / "below") == folder_message(
        file / "below", f"{file / 'below'} needs a folder where there is a file"
    )


def raises(number: int) -> Callable[..., object]:
    def fail(*arguments: object, **named: object) -> object:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "it is full: No space left on device"),
        (errno.EDQUOT, f"it is full: {os.strerror(errno.EDQUOT)}"),
        (errno.EROFS, "it is read-only"),
        (errno.EACCES, "Permission denied"),
        (errno.ENOLCK, os.strerror(errno.ENOLCK)),
    ],
)
@pytest.mark.parametrize(
    "step",
    [
        "pathlib.Path.mkdir",
        "tempfile.mkdtemp",
        "pathlib.Path.write_bytes",
        "pathlib.Path.rename",
        "fcntl.flock",
        "os.pwrite",
    ],
)
def test_each_step_that_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str, step: str
) -> None:
    find_compiler("c", memory=tmp_path / "compilers")
    with monkeypatch.context() as patch:
        patch.setattr(step, raises(number))
        assert failure(tmp_path) == folder_message(tmp_path, reason)
    patterns = ("building/*", "entries/*/*", *(("locks/*",) if step != "fcntl.flock" else ()))
    assert [left for pattern in patterns for left in tmp_path.glob(pattern)] == []
    assert build(library(), cache=tmp_path, on_start=silent).exists()


@pytest.mark.parametrize(
    "line",
    [
        "echo 'k.c:1:1: fatal error: error writing to /c/x.s: No space left on device'; exit 1",
        "echo '/usr/bin/ld: final link failed: No space left on device'; exit 1",
    ],
)
def test_a_compiler_that_finds_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "cc", line))
    said = line.split("'")[1]
    assert failure(tmp_path / "cache") == folder_message(tmp_path / "cache", said)


PACKAGE = str(Path(compilers.__file__).parents[1])
BUILDER = """
import sys, types
from pathlib import Path
sys.modules["oneop"] = package = types.ModuleType("oneop")  # the builder alone: the package would import torch
package.__path__ = [sys.argv[1]]
from oneop.errors import BuildError
from oneop.kernels.building import Library, Unit, build
unit = Unit("k", "c", "int call(void) { return 1; }\\n" + sys.argv[3])
try:
    print(build(Library("the kernels of k.py", "k", (unit,)), cache=Path(sys.argv[2]), on_start=lambda message: None))
except BuildError as error:
    print(error)
"""


def in_private_mounts(shell: str, **names: str) -> list[str]:
    """Run `shell` as root of its own mounts; `$build CACHE TEXT` builds there. The lines it printed."""
    command = f'set -e; build() {{ "{sys.executable}" -c "$builder" "$package" "$@"; }}\n{shell}'
    answer = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command],
        env={**os.environ, "builder": BUILDER, "package": PACKAGE, **names},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout
    return answer.stdout.splitlines()


def can_mount() -> bool:
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


needs_mounts = pytest.mark.skipif(
    not can_mount(), reason="this machine lets us mount nothing; errors are injected above"
)


@needs_mounts
@pytest.mark.parametrize("size", [16, 40, 200])
def test_a_disk_that_is_full(tmp_path: Path, size: int) -> None:
    """So small that the lock, the sources, or the objects do not fit."""
    text = "char big[400000] = {1};"
    lines = in_private_mounts(
        'mount -t tmpfs -o size=${size}k none "$cache"; build "$cache" "$text"; find "$cache" -type f',
        cache=str(tmp_path),
        size=str(size),
        text=text,
    )
    assert lines[0] == folder_message(tmp_path, "it is full: No space left on device")
    assert [line for line in lines[1:] if "/compilers/" not in line and "/failed/" not in line] == []


@needs_mounts
def test_a_read_only_folder_serves_what_it_has(tmp_path: Path) -> None:
    lines = in_private_mounts(
        'build "$cache" ""; mount --bind "$cache" "$cache"; mount -o remount,bind,ro "$cache"; build "$cache" "";'
        'build "$cache" "/* other */"; build "$cache/below" ""',
        cache=str(tmp_path),
    )
    assert lines[0].endswith("libk.so")
    assert lines[1] == lines[0]
    assert lines[2] == folder_message(tmp_path, "it is read-only")
    assert lines[3] == folder_message(tmp_path / "below", "it is read-only")
