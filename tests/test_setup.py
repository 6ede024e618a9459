"""`make` says in one line what a machine lacks, before it installs anything."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("sh", "make", "rm", "touch", "find", "env")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A copy of what `make` needs, with a folder of programs that holds neither Python nor a compiler."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found is not None, name
        (programs / name).symlink_to(found)
    return tmp_path


def make(machine: Path, **variables: str) -> str:
    """Runs `make setup`, which must fail, and gives what it printed."""
    environment = {"PATH": str(machine / "bin"), "HOME": str(machine), **variables}
    done = subprocess.run(["make", "setup"], cwd=machine, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    assert not list(machine.glob(".venv/ready-*"))
    return done.stdout + done.stderr


def add_python(machine: Path, pretending: str = "") -> None:
    """A `python3` that runs this Python after the statements ``pretending``."""
    (machine / "pretend").mkdir()
    (machine / "pretend" / "sitecustomize.py").write_text(pretending)
    script = machine / "bin" / "python3"
    script.write_text(f'#!{shutil.which("sh")}\nPYTHONPATH="{machine}/pretend" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)


def test_no_python(machine: Path) -> None:
    assert "oneop needs Python 3.11 or newer, and python3 is not: apt install python3" in make(machine)


def test_old_python(machine: Path) -> None:
    add_python(machine, "import sys; sys.version_info = (3, 9, 18, 'final', 0)")
    assert "oneop needs Python 3.11 or newer, and python3 is not: apt install python3" in make(machine)


def test_no_venv_module(machine: Path) -> None:
    add_python(
        machine,
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'ensurepip' else real(name, *rest)",
    )
    assert "oneop needs Python's venv module, and" in (said := make(machine))
    assert "has none: apt install python3-venv (Debian, Ubuntu)" in said


def test_no_compiler(machine: Path) -> None:
    add_python(machine)
    expected = (
        "oneop needs a C++ compiler: apt install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), "
        "xcode-select --install (macOS)"
    )
    assert expected in make(machine)


def test_a_compiler_that_is_not_there(machine: Path) -> None:
    add_python(machine)
    assert "oneop needs a C++ compiler, and CXX names nowhere-g++, which is not there: " in make(
        machine, CXX="nowhere-g++ -m64"
    )


def test_the_pinned_torch_can_be_another() -> None:
    code = r"import setup; print(setup.pinned('a==1\ntorch==2.13.0\nz==3\n', '2.11.0'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["a==1", "torch==2.11.0", "z==3"]


def test_every_dependency_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {line.partition("==")[0].lower() for line in lines if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for extra in extras for name in extra)]
    assert {name.split(">")[0].split("[")[0].strip().lower() for name in wanted} - pins == {"oneop"}


def test_ci_can_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_another_release_of_torch_brings_its_own_bound_for_setuptools() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); import setup; print(setup.pinned(*sys.argv[1:]))"
    )
    given = "setuptools==84.2.1\nsympy==1.14.0\ntorch==2.13.0\n"
    for torch, expected in (("2.11.0", "sympy==1.14.0\ntorch==2.11.0\n"), ("", given)):
        ran = subprocess.run([sys.executable, "-c", program, given, torch], capture_output=True, text=True, check=True)
        assert ran.stdout == expected + "\n"
