"""Several builders at once, and builders that die: one builds, others wait, nothing half-written is seen or stays."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from oneop.errors import BuildError
from oneop.kernels import locks
from oneop.kernels.building import Library, Unit, build

LIBRARY = Library("the kernels of k.py", "k", (Unit("k", "c", "int call(void) { return 1; }\n"),))
PACKAGE = str(Path(locks.__file__).parents[1])
BUILDER = """
import sys, types
from pathlib import Path
sys.modules["oneop"] = package = types.ModuleType("oneop")  # the builder alone: the package would import torch
package.__path__ = [sys.argv[1]]
from oneop.errors import BuildError
from oneop.kernels.building import Library, Unit, build
library = Library("the kernels of k.py", "k", (Unit("k", "c", "int call(void) { return 1; }\\n"),))
say = lambda message: print(message, flush=True)
try:
    print(build(library, cache=Path(sys.argv[2]), on_start=say))
except BuildError as error:
    print(error)
"""


@dataclass
class Yard:
    """A cache, and a compiler that notes its process and its runs, and waits for the file `go`."""

    folder: Path
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", BUILDER, PACKAGE, str(self.cache)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.started.append(process)
        return process

    def go(self) -> None:
        (self.folder / "go").touch()

    def compilers(self) -> list[int]:
        """The processes that compiled, or do."""
        file = self.folder / "compilers"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def wait_for_compiler(self, number: int = 1) -> int:
        wait_until(lambda: len(self.compilers()) >= number)
        return self.compilers()[number - 1]

    def leftovers(self) -> list[Path]:
        return [*self.cache.glob("building/*"), *self.cache.glob("locks/*")]


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def is_gone(process: int) -> bool:
    """Ended; its new parent may not have collected it yet."""
    if Path("/proc/self").exists():
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
    else:
        command = ["ps", "-o", "stat=", "-p", str(process)]
        state = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()[:1]
    return state in ("", "Z", "X")


@contextmanager
def interrupted_at_the_end(yard: Yard) -> Iterator[Yard]:
    try:
        yield yard
    finally:
        yard.go()
        for process in yard.started:
            process.kill()
            process.communicate()


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    real = shutil.which("gcc") or shutil.which("clang")
    script = tmp_path / "cc"
    script.write_text(
        f"""#!/bin/sh
case " $* " in *" -c "*)
    echo $$ >>"{tmp_path}/compilers"
    : >half.o
    while [ ! -e "{tmp_path}/go" ]; do sleep 0.02; done;;
esac
exec "{real}" "$@"
"""
    )
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.delenv("ONEOP_BUILD_TIMEOUT", raising=False)
    with interrupted_at_the_end(Yard(tmp_path)) as made:
        yield made


def test_two_processes_build_once(yard: Yard) -> None:
    first = yard.start()
    yard.wait_for_compiler()
    second = yard.start()
    assert second.stdout is not None
    assert second.stdout.readline() == f"waiting for process {first.pid}, which builds the kernels of k.py\n"
    yard.go()
    (one, _), (two, _) = first.communicate(timeout=20), second.communicate(timeout=20)
    assert one.splitlines()[-1] == two.strip()
    assert Path(two.strip()).exists()
    assert len(yard.compilers()) == 1
    assert yard.leftovers() == []


def test_no_message_for_a_short_wait(yard: Yard) -> None:
    yard.go()
    said: list[str] = []
    with locks.exclusive(yard.folder / "lock", 5, said.append):
        thread = threading.Thread(target=lambda: enter_and_leave(yard.folder / "lock", said))
        thread.start()
        time.sleep(0.3)
    thread.join()
    assert said == []


def enter_and_leave(lock: Path, said: list[str]) -> None:
    with locks.exclusive(lock, 5, said.append):
        pass


def test_eight_processes_at_once(yard: Yard) -> None:
    yard.go()
    outputs = [process.communicate(timeout=60)[0].splitlines()[-1] for process in [yard.start() for _ in range(8)]]
    assert len(set(outputs)) == 1
    assert len(yard.compilers()) == 1
    assert yard.leftovers() == []


def test_threads_build_once(yard: Yard) -> None:
    said: list[str] = []
    paths: list[Path] = []
    threads = [
        threading.Thread(target=lambda: paths.append(build(LIBRARY, cache=yard.cache, on_start=said.append)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(said) == 3)
    yard.go()
    for thread in threads:
        thread.join()
    assert len(paths) == 3
    assert len(set(paths)) == 1
    assert len(yard.compilers()) == 1
    assert said[1:] == ["waiting for another thread of this process, which builds the kernels of k.py"] * 2


def test_the_bound_on_waiting(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = yard.start()
    yard.wait_for_compiler()
    monkeypatch.setenv("ONEOP_BUILD_TIMEOUT", "0.5")
    with pytest.raises(BuildError) as caught:
        build(LIBRARY, cache=yard.cache)
    assert str(caught.value) == (
        f"cannot build the kernels of k.py: waited 0.5 s for process {holder.pid}, which is building the same. End "
        "that process if it hangs (its lock goes with it), or set ONEOP_BUILD_TIMEOUT to more seconds."
    )


@pytest.mark.parametrize("compiler_dies", [False, True])
def test_a_dead_builder_is_taken_over_at_once(yard: Yard, compiler_dies: bool) -> None:
    first = yard.start()
    compiler = yard.wait_for_compiler()
    second = yard.start()
    assert second.stdout is not None
    assert second.stdout.readline().startswith("waiting for process")
    first.kill()
    if compiler_dies:
        os.kill(compiler, signal.SIGKILL)
    killed = time.monotonic()
    assert second.stdout.readline().startswith("building the kernels of k.py")
    assert time.monotonic() - killed < 3.0
    assert not list(yard.cache.glob("entries/*/*"))
    yard.wait_for_compiler(2)
    yard.go()
    output, _ = second.communicate(timeout=20)
    assert Path(output.strip()).exists()
    wait_until(lambda: is_gone(compiler))
    assert yard.leftovers() == []


def test_leftovers_of_dead_builders_are_swept_and_those_of_the_living_are_not(yard: Yard) -> None:
    dead, living = yard.cache / "building" / "a-1.x", yard.cache / "building" / "b-2.y"
    for folder in (dead, living):
        folder.mkdir(parents=True)
        (folder / "half.o").touch()
    (yard.cache / "locks").mkdir()
    (yard.cache / "locks" / "a-1.lock").write_text("1234567 somewhere")
    yard.go()
    with locks.exclusive(yard.cache / "locks" / "b-2.lock", 1, print):
        build(LIBRARY, cache=yard.cache, on_start=lambda message: None)
        assert yard.leftovers() == [living, yard.cache / "locks" / "b-2.lock"]


def test_a_lock_file_of_a_dead_builder_is_no_lock(yard: Yard) -> None:
    lock = yard.folder / "lock"
    lock.write_text("1 somewhere")
    with locks.exclusive(lock, 0, print):
        assert lock.read_text().startswith(f"{os.getpid()} ")
    assert not lock.exists()


def test_ctrl_c_ends_the_compilers_and_leaves_nothing(yard: Yard) -> None:
    process = yard.start()
    compiler = yard.wait_for_compiler()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in output
    assert is_gone(compiler)
    assert yard.leftovers() == []
    assert not list(yard.cache.glob("entries/*/*"))


def test_a_compiler_that_hangs_is_ended_with_its_children(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    script = yard.folder / "cc"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\nsleep 60 & echo $! >"{yard.folder}/child"; wait\n')
    monkeypatch.setenv("ONEOP_BUILD_TIMEOUT", "2")
    with pytest.raises(BuildError) as caught:
        build(LIBRARY, cache=yard.cache, on_start=lambda message: None)
    assert str(caught.value) == (
        "cannot build the kernels of k.py: the compiler ran for more than 2 s and was ended. Make the source "
        "simpler, or set ONEOP_BUILD_TIMEOUT to more seconds."
    )
    child = int((yard.folder / "child").read_text())
    wait_until(lambda: is_gone(child))  # it is killed, and not ours to wait for
    assert yard.leftovers() == []


def test_a_forked_child_does_not_keep_its_dead_parents_lock(yard: Yard) -> None:
    """A data loader is forked while another thread builds; then the parent is killed, and the child lives on."""
    fork = multiprocessing.get_context("fork")
    children = fork.SimpleQueue()

    def parent() -> None:
        thread = threading.Thread(target=lambda: build(LIBRARY, cache=yard.cache, on_start=lambda message: None))
        thread.start()
        yard.wait_for_compiler()
        child = fork.Process(target=time.sleep, args=(60,))
        child.start()
        children.put(child.pid)
        thread.join()

    process = fork.Process(target=parent)
    process.start()
    child = children.get()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    try:
        assert not is_gone(child)
        yard.go()
        start = time.monotonic()
        assert build(LIBRARY, cache=yard.cache, on_start=lambda message: None).exists()
        assert time.monotonic() - start < 5
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_builds(yard: Yard) -> None:
    yard.go()
    build(LIBRARY, cache=yard.cache, on_start=lambda message: None)
    fork = multiprocessing.get_context("fork")
    results = fork.SimpleQueue()
    other = Library("the kernels of l.py", "l", (Unit("l", "c", "int call(void) { return 2; }\n"),))
    process = fork.Process(target=lambda: results.put(build(other, cache=yard.cache, on_start=lambda message: None)))
    process.start()
    assert results.get().exists()
    process.join()
    assert process.exitcode == 0


def test_at_most_one_compiler_for_each_core(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    units = tuple(Unit(f"u{number}", "c", f"int u{number};\n") for number in range(5))
    library = Library("the kernels of u.py", "u", units)
    thread = threading.Thread(target=lambda: build(library, cache=yard.cache, on_start=lambda message: None))
    thread.start()
    yard.wait_for_compiler(2)
    time.sleep(0.3)
    assert len(yard.compilers()) == 2
    yard.go()
    thread.join()
    assert len(yard.compilers()) == 5
