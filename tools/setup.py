"""Makes .venv with the pinned dependencies and oneop itself. The Makefile runs it, with the standard library alone."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BACKEND = "hatchling"


def main(environment: Path, torch: str | None = None) -> None:
    check_machine()
    print(f"oneop: setting up {environment}, once; this takes a minute or more, most of it for torch", flush=True)
    python = environment / "bin" / "python"
    if not runs(python):
        create(environment)
    constraints = environment / "constraints.txt"
    constraints.write_text(pinned((ROOT / "constraints.txt").read_text(), torch))
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-c", str(constraints)]
    # The backend comes first and oneop is built without isolation: an isolated build would ignore the constraints.
    install([*pip, BACKEND], environment / "install.log")
    install([*pip, "--no-build-isolation", "-e", f"{ROOT}[dev]"], environment / "install.log")


def check_machine() -> None:
    """Ends with one line that says what to install, where something is missing."""
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        sys.exit(
            f"oneop needs Python's venv module, and {sys.executable} has none: apt install python3-venv "
            "(Debian, Ubuntu), or use another Python with make PYTHON=/path/to/python3"
        )
    for variable, names, language in (("CXX", ("c++", "g++", "clang++"), "C++"), ("CC", ("cc", "gcc", "clang"), "C")):
        chosen = shlex.split(os.environ.get(variable, ""))[:1]
        if not any(shutil.which(name) for name in chosen or names):
            given = f", and {variable} names {chosen[0]}, which is not there" if chosen else ""
            sys.exit(
                f"oneop needs a {language} compiler{given}: apt install g++ (Debian, Ubuntu), dnf install gcc-c++ "
                "(Fedora), xcode-select --install (macOS)"
            )


def runs(python: Path) -> bool:
    """Whether the environment's Python exists, still works, and is of the version that was asked for."""
    if not python.exists():
        return False
    code = "import pip, sys; print(*sys.version_info[:2])"
    probe = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return probe.stdout.split() == [str(part) for part in sys.version_info[:2]]


def create(environment: Path) -> None:
    command = [sys.executable, "-m", "venv", "--clear", str(environment)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        sys.exit(f"oneop: `{shlex.join(command)}` made no virtual environment, and said:\n{made.stdout}{made.stderr}")


def pinned(constraints: str, torch: str | None) -> str:
    """The constraints, with another release of torch where one is asked for.

    That release bounds setuptools itself: 2.11 and 2.12 want one below 82.
    """
    if not torch:
        return constraints
    return re.sub(r"(?m)^torch==.*$", f"torch=={torch}", re.sub(r"(?m)^setuptools==.*\n", "", constraints))


def install(command: list[str], log: Path) -> None:
    """Runs pip with its output in ``log``; shows what it is at and, where it fails, what it said."""
    started = time.monotonic()
    said: list[str] = []
    live = sys.stdout.isatty()
    with log.open("a") as file:
        pip = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert pip.stdout is not None
        for line in pip.stdout:
            file.write(line)
            said.append(line)
            if (step := worth_showing(line, every=live)) is not None:
                text = f"  [{time.monotonic() - started:3.0f} s] {step}"
                print(f"\r\033[K{text}" if live else text, end="" if live else "\n", flush=True)
    if live:
        print("\r\033[K", end="", flush=True)
    if pip.wait() != 0:
        sys.exit("oneop: pip failed, and said:\n" + "".join(said[-30:]) + f"(all of it is in {log})")


_WHEEL = re.compile(r"\s*(?:Downloading|Using cached) (?:\S*/)?([^/\s-]+)-([^-\s]+)-\S+\.whl \((\S+ [kMG]?B)\)")


def worth_showing(line: str, every: bool) -> str | None:
    """What pip is at, short: `torch 2.13.0 (190.1 MB)`. Without ``every``, only what takes long."""
    if wheel := _WHEEL.match(line):
        name, version, size = wheel.groups()
        return f"{name} {version} ({size})" if every or re.match(r"\d{2,}.*[MG]B", size) else None
    if line.startswith("Installing collected packages"):
        return "installing what was downloaded"
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
