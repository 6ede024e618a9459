"""Finding the C, C++ and CUDA compilers, and knowing which one it is without running it each time."""

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oneop.errors import BuildError

Language = Literal["c", "c++", "cuda"]

# Whatever of these is set changes what a compiler or linker reads, so it belongs to the key of a build.
ENVIRONMENT = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "LD_RUN_PATH",
    "LDEMULATION",
    "CCC_OVERRIDE_OPTIONS",
    "SDKROOT",
    "MACOSX_DEPLOYMENT_TARGET",
    "DEVELOPER_DIR",
)
CUDA_ENVIRONMENT = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "ONEOP_CUDA_ARCHITECTURES")
_VARIABLE: dict[Language, str] = {"c": "CC", "c++": "CXX", "cuda": "NVCC"}
_TITLE: dict[Language, str] = {"c": "C", "c++": "C++", "cuda": "CUDA"}
_CANDIDATES: dict[Language, tuple[str, ...]] = {
    "c": ("gcc", "clang", "cc"),
    "c++": ("g++", "clang++", "c++"),
    "cuda": ("nvcc",),
}
_CUDA_HOMES = ("CUDA_HOME", "CUDA_PATH")
# What is compiled for unless somebody chooses: each family of GPUs, as far as nvcc knows it, and code that the driver
# translates for those to come (for the last of Hopper's family, which everything newer takes, and for the newest).
_ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")
_TRANSLATED = "90"
_NAME_OF_ARCHITECTURE = re.compile(r"(?:sm_|compute_)?(\d{2,3}[af]?)")
_INSTALL: dict[Language, str] = {
    "c": "Debian or Ubuntu: `apt-get install gcc`; Fedora: `dnf install gcc`; macOS: `xcode-select --install`",
    "c++": "Debian or Ubuntu: `apt-get install g++`; Fedora: `dnf install gcc-c++`; macOS: `xcode-select --install`",
    "cuda": "the CUDA toolkit, https://developer.nvidia.com/cuda-downloads; its bin folder belongs on PATH",
}
NO_NVCC = (
    "no CUDA compiler was found (nvcc is not on PATH, and neither $CUDA_HOME/bin nor $CUDA_PATH/bin has it). Install"
    f" one ({_INSTALL['cuda']}), or set $NVCC to the one to use."
)
_QUESTIONS: dict[Language, tuple[tuple[str, ...], ...]] = {
    "c": (("--version",),),
    "c++": (("--version",),),
    "cuda": (("--version",), ("--list-gpu-arch",), ("--dryrun", "-c", "-x", "cu", os.devnull)),
}
"""What a compiler is asked to know which one it is; all answers together are its version."""


@dataclass(frozen=True)
class Compiler:
    """A compiler that has answered `--version`."""

    language: Language
    command: tuple[str, ...]  # the program, as an absolute path, and the arguments that $CC or $CXX gave
    version: str  # all that `--version` printed
    name: str  # for messages: "g++ 12.2.0"

    @property
    def is_clang(self) -> bool:
        return self.language != "cuda" and "clang" in self.version.lower()

    @property
    def architectures(self) -> tuple[str, ...]:
        """The GPU architectures that nvcc knows: "75", "80", ..."""
        return tuple(dict.fromkeys(re.findall(r"^compute_(\w+)$", self.version, re.MULTILINE)))

    @property
    def library_folders(self) -> tuple[str, ...]:
        """Where nvcc's libraries are, the CUDA runtime among them."""
        line = re.search(r"^#\$ LIBRARIES=(.*)$", self.version, re.MULTILINE)
        words = shlex.split(line[1]) if line is not None else []
        return tuple(word.removeprefix("-L") for word in words if word.startswith("-L") and not word.endswith("/stubs"))


def find_compiler(language: Language, *, memory: Path | None = None) -> Compiler:
    """The compiler that $CC or $CXX names (it may hold arguments), or the system's.

    `memory` is a folder that keeps versions between processes. Raises BuildError that says what to install.
    """
    words, variable = _command(language)
    version = _version(language, words, _identity(words), memory)
    if version is None:
        raise _cannot_run(language, words, variable)
    return Compiler(language, words, version, _name(words, version))


def has_cuda_compiler() -> bool:
    """Whether there is an nvcc: named by $NVCC, on PATH, or below $CUDA_HOME. It is not run."""
    return bool(os.environ.get("NVCC", "").strip()) or _on_path("cuda") is not None


def cuda_architectures(compiler: Compiler, chosen: Sequence[str] | None, title: str) -> tuple[str, ...]:
    """The options that make nvcc compile for the GPUs that are asked for.

    `chosen` is the definition's; $ONEOP_CUDA_ARCHITECTURES comes first ("80;90", with "+PTX" behind a name that the
    driver may translate for newer GPUs). BuildError where nvcc does not know one.
    """
    given = os.environ.get("ONEOP_CUDA_ARCHITECTURES", "").strip()
    source = "$ONEOP_CUDA_ARCHITECTURES" if given else "cuda_architectures"
    wanted = re.split(r"[;,\s]+", given.strip(";, ")) if given else chosen
    known = compiler.architectures
    if wanted is None:
        found = [name for name in _ARCHITECTURES if name in known]
        translated = {_TRANSLATED, found[-1]} if found else set()
        return _generated([(name, name in translated) for name in found])
    pairs = []
    for word in wanted:
        plain = word.removesuffix("+PTX")
        match = _NAME_OF_ARCHITECTURE.fullmatch(plain.replace(".", ""))
        if match is None or match[1].rstrip("af") not in known:
            raise BuildError(
                f"cannot build {title}: {source} names the GPU architecture `{word}`, and {compiler.name} knows "
                f"{', '.join(known)}. Name some of these, such as 80 or 90+PTX, or install a toolkit that knows it."
            )
        pairs.append((match[1], plain != word))
    if not any(translated for _, translated in pairs):
        pairs[-1] = (pairs[-1][0], True)
    return _generated(pairs)


def _generated(pairs: Sequence[tuple[str, bool]]) -> tuple[str, ...]:
    return tuple(
        word
        for name, translated in pairs
        for code in [f"[sm_{name},compute_{name}]" if translated else f"sm_{name}"]
        for word in ("-gencode", f"arch=compute_{name},code={code}")
    )


def cpu_identity(flags: Iterable[str]) -> str:
    """What `-march=native` depends on; empty where no flag asks for the machine at hand."""
    return _cpu() if any(flag.endswith("=native") for flag in flags) else ""


def _command(language: Language) -> tuple[tuple[str, ...], str | None]:
    variable = _VARIABLE[language]
    given = os.environ.get(variable, "").strip()
    if given:
        return _from_variable(language, variable, given), variable
    found = _on_path(language)
    if found is not None:
        return (os.path.abspath(found),), None
    if language == "cuda":
        raise BuildError(NO_NVCC)
    raise BuildError(
        f"no {_TITLE[language]} compiler was found ({', '.join(_CANDIDATES[language])} are not on PATH). "
        f"Install one ({_INSTALL[language]}), or set ${variable} to the one to use."
    )


def _on_path(language: Language) -> str | None:
    homes = [os.environ[name] for name in _CUDA_HOMES if os.environ.get(name)] if language == "cuda" else []
    places = [None, *(os.path.join(home, "bin") for home in homes)]
    return next((found for place in places for name in _CANDIDATES[language] if (found := _which(name, place))), None)


def _which(name: str, place: str | None) -> str | None:
    return shutil.which(name) if place is None else shutil.which(name, path=place)


def _from_variable(language: Language, variable: str, given: str) -> tuple[str, ...]:
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise BuildError(
            f"${variable} is `{given}`, which does not read as a command: {error}. Correct its quotes."
        ) from None
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise BuildError(
            f"${variable} is `{given}`, but there is no program `{words[0] if words else given}`. "
            f"Set ${variable} to a {_TITLE[language]} compiler, or unset it to use the system's."
        )
    return (os.path.abspath(found), *words[1:])


def _cannot_run(language: Language, words: tuple[str, ...], variable: str | None) -> BuildError:
    command = shlex.join(words)
    if variable is not None:
        return BuildError(
            f"${variable} is `{command}`, but `{command} --version` fails, so it is no usable compiler. "
            f"Set ${variable} to a {_TITLE[language]} compiler, or unset it to use the system's."
        )
    return BuildError(
        f"the {_TITLE[language]} compiler `{command}` does not run: `{command} --version` fails. "
        f"Install one ({_INSTALL[language]}), or set ${_VARIABLE[language]} to the one to use."
    )


def _identity(words: tuple[str, ...]) -> tuple[tuple[str, int, int, int], ...]:
    """Path, size and times of every program in the command: `ccache g++` is two."""
    programs = [found for word in words if not word.startswith("-") and (found := shutil.which(word)) is not None]
    stats = [(program, os.stat(program)) for program in programs]
    return tuple((program, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for program, stat in stats)


@functools.lru_cache(maxsize=64)
def _version(
    language: Language, words: tuple[str, ...], identity: tuple[tuple[str, int, int, int], ...], memory: Path | None
) -> str | None:
    kept = _kept_version(language, words, identity, memory)
    if kept is None:
        return _ask_version(language, words)
    with contextlib.suppress(OSError, UnicodeDecodeError):  # not there yet, or damaged: ask the compiler
        return kept.read_text(encoding="utf-8")
    version = _ask_version(language, words)
    if version is not None:
        with contextlib.suppress(
            OSError
        ):  # only a convenience; a folder that cannot be written is reported by the build
            _write_whole(kept, version)
    return version


def _kept_version(
    language: Language, words: tuple[str, ...], identity: tuple[tuple[str, int, int, int], ...], memory: Path | None
) -> Path | None:
    # A script, and Apple's shims, may run another compiler tomorrow though they did not change: these are asked.
    if memory is None or sys.platform == "darwin" or any(_is_script(program) for program, *_ in identity):
        return None
    asked = [words, identity, *(_QUESTIONS[language] if language == "cuda" else ())]
    return memory / hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]


def _is_script(program: str) -> bool:
    try:
        with open(program, "rb") as file:
            return file.read(2) == b"#!"
    except PermissionError:  # it may run and not be read: we cannot tell
        return True


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


def _ask_version(language: Language, words: tuple[str, ...]) -> str | None:
    answers = [_answer((*words, *question)) for question in _QUESTIONS[language]]
    if None in answers:
        return None
    told = "".join(answer for answer in answers if answer is not None)
    # A dry run names temporary files, another one each time.
    return "\n".join(
        line for line in told.splitlines() if not line.startswith("#$") or line.startswith("#$ LIBRARIES=")
    )


def _answer(command: tuple[str, ...]) -> str | None:
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=compiler_environment(),
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else None


def compiler_environment(temporary: Path | None = None) -> dict[str, str]:
    """Our environment, with English messages, and temporary files where we sweep."""
    environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C"}
    for name in ("DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES"):  # they take over -MD
        environment.pop(name, None)
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    return environment


def _name(words: tuple[str, ...], version: str) -> str:
    program = next((w for w in reversed(words) if not w.startswith("-") and shutil.which(w) is not None), words[0])
    release = re.search(r"^Cuda compilation tools, release (\S+),", version, re.MULTILINE)
    first = release[1] if release is not None else re.sub(r"\([^)]*\)", "", version.partition("\n")[0])
    number = re.search(r"\d+(\.\d+)+", first)
    return f"{Path(program).name} {number.group()}" if number else Path(program).name


@functools.lru_cache(maxsize=1)
def _cpu() -> str:
    if sys.platform == "darwin":
        answer = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], stdout=subprocess.PIPE, check=False
        )
        return answer.stdout.decode("utf-8", "replace").strip() or platform.machine()
    wanted = (
        "vendor_id",
        "model name",
        "cpu family",
        "model",
        "stepping",
        "flags",
        "Features",
        "CPU implementer",
        "CPU part",
    )
    with contextlib.suppress(OSError):  # no /proc: all that is known is the architecture
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
        return "\n".join(
            line for line in first.splitlines() if line.partition("\t")[0].partition(":")[0].strip() in wanted
        )
    return platform.machine()
