"""From sources to a shared library in the cache: compiled once, by one process, whatever happens to it."""

import contextlib
import hashlib
import json
import os
import platform
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache as remember
from pathlib import Path

from oneop.errors import BuildError
from oneop.kernels import diagnostics, locks
from oneop.kernels.cache import Cache, cache_root, reason_of, remove, slot_name
from oneop.kernels.compilers import ENVIRONMENT, Compiler, Language, compiler_environment, cpu_identity, find_compiler
from oneop.kernels.console import say
from oneop.kernels.dependencies import Dependencies, digest_of, parse_depfile, record
from oneop.kernels.jobs import CannotStartError, Job, Outcome, TooLongError, run_jobs

__all__ = ["Compiler", "Language", "Library", "Unit", "build", "find_compiler"]

_RECIPE = 1  # raise it when the commands below change in a way the key does not see
_SUFFIX: dict[Language, str] = {"c": ".c", "c++": ".cpp"}
_STANDARD: dict[Language, str] = {"c": "-std=c11", "c++": "-std=c++17"}
_ATTEMPTS = 5
_WORTH_SAYING_SECONDS = 5.0


@dataclass(frozen=True)
class Unit:
    """One translation unit: a generated text, or a user's file that is compiled as it is."""

    name: str  # of the object, unique in its library
    language: Language
    text: str | None = None
    path: Path | None = None
    flags: tuple[str, ...] = ()  # e.g. -std=c++20; the default is -std=c11 or -std=c++17


@dataclass(frozen=True)
class Library:
    """What to compile and link. The compiler runs in the build folder: give absolute paths in flags."""

    title: str  # for messages: "the kernels of scaled_linear.py"
    stem: str  # of the file: "scaled_linear" gives libscaled_linear.so
    units: tuple[Unit, ...]
    headers: Mapping[str, str] = field(default_factory=dict)  # generated; found first by #include "..." in every unit
    include_dirs: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()  # for every unit, after our -O3 -fPIC
    link_flags: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()  # further files that belong to the key
    # Include folders of installed packages: their warnings are not shown and their files are not watched, so the
    # package's version has to be in `flags` or in a text.
    system_dirs: tuple[Path, ...] = ()
    allow_undefined: bool = False  # symbols that the loading program provides (an extension of Python)
    note: str = ""  # said when the build starts: "once for each torch version, about 20 s"
    # Given all that the compiler printed, a hint that then stands right below the title; None: none.
    explain: Callable[[str], str | None] | None = None


class _ChangedError(Exception):
    """A file that belongs to the key changed while we compiled."""


def build(library: Library, *, cache: Path | None = None, on_start: Callable[[str], None] | None = None) -> Path:
    """The path of the built library, from the cache where nothing changed.

    `on_start` is given the lines for the user (a build starts, another process is waited for); the default prints them
    on stderr. Raises BuildError: no compiler, a source that does not compile, a cache folder that cannot be used, a
    bound (ONEOP_BUILD_TIMEOUT seconds, 600) that has passed.
    """
    store = Cache(cache_root(cache))
    for _ in range(_ATTEMPTS):
        compilers = _compilers(library, store)
        known = _known_digests(library)
        slot = slot_name(library.stem, _key(library, compilers, known))
        found = store.lookup(slot, _file_name(library))
        if found is not None:
            return found
        with contextlib.suppress(_ChangedError):
            return _Builder(library, store, compilers, known, slot, on_start or say).run()
    raise BuildError(f"cannot build {library.title}: the sources kept changing while they were compiled. Run it again.")


def _compilers(library: Library, store: Cache) -> dict[Language, Compiler]:
    languages = dict.fromkeys(unit.language for unit in library.units)
    return {language: find_compiler(language, memory=store.compilers) for language in languages}


def _file_name(library: Library) -> str:
    return f"lib{library.stem}.so"  # dlopen takes the suffix .so on macOS too


def _known_digests(library: Library) -> dict[str, str]:
    """The content of every file that we are told about."""
    paths = [*(unit.path for unit in library.units if unit.path is not None), *library.inputs]
    return {str(path): _digest(library, path) for path in paths}


def _digest(library: Library, path: Path) -> str:
    try:
        return digest_of(path)
    except FileNotFoundError:
        raise BuildError(
            f"cannot build {library.title}: {path} does not exist. Correct the name in `kernels=`."
        ) from None
    except OSError as error:
        raise BuildError(
            f"cannot build {library.title}: {path} cannot be read ({error.strerror}). Make it a readable file."
        ) from None


def _key(library: Library, compilers: Mapping[Language, Compiler], known: Mapping[str, str]) -> str:
    """A hash of all that is known before compiling; what the compiler reads besides is in the entry."""
    flags = [*library.flags, *library.link_flags, *(flag for unit in library.units for flag in unit.flags)]
    content = (
        _RECIPE,
        _abi_version(),
        (sys.platform, platform.machine(), sys.maxsize),
        library.stem,
        [(unit.name, unit.language, unit.text, str(unit.path), unit.flags) for unit in library.units],
        sorted(library.headers.items()),
        ([str(folder) for folder in library.include_dirs], [str(folder) for folder in library.system_dirs]),
        (library.flags, library.link_flags, library.allow_undefined),
        sorted(known.items()),
        [(compiler.command, compiler.version) for compiler in compilers.values()],
        [(name, os.environ.get(name)) for name in ENVIRONMENT],
        cpu_identity(flags),
    )
    return hashlib.sha256(repr(content).encode("utf-8", "surrogatepass")).hexdigest()


@remember
def _abi_version() -> str:
    header = Path(__file__).with_name("include") / "oneop.h"
    found = re.search(r"#define ONEOP_ABI_VERSION (\d+)", header.read_text(encoding="utf-8"))
    if found is None:
        raise AssertionError(f"{header} states no ONEOP_ABI_VERSION")
    return found[1]


@dataclass(frozen=True)
class _Builder:
    library: Library
    store: Cache
    compilers: Mapping[Language, Compiler]
    known: Mapping[str, str]
    slot: str
    tell: Callable[[str], None]

    def run(self) -> Path:
        bound = _bound()
        try:
            with locks.exclusive(self.store.lock_path(self.slot), bound, self._tell_waiting):
                found = self.store.lookup(self.slot, _file_name(self.library))
                return found if found is not None else self._build(bound)
        except locks.StillHeldError as held:
            raise self._error(
                f"waited {bound:g} s for {held.holder}, which is building the same. End that process if it hangs (its lock "
                "goes with it), or set ONEOP_BUILD_TIMEOUT to more seconds."
            ) from None
        except OSError as error:
            raise self._folder_error(reason_of(error)) from error

    def _build(self, bound: float) -> Path:
        names = ", ".join(compiler.name for compiler in self.compilers.values())
        self.tell(f"building {self.library.title} ({names}{'; ' if self.library.note else ''}{self.library.note})")
        start = time.monotonic()
        folder = self.store.workplace(self.slot)
        try:
            self._write_sources(folder)
            dependencies = self._make(folder, start + bound)
            seconds = time.monotonic() - start
            self._clear_intermediates(folder)
            about = {"title": self.library.title, "compiler": names, "seconds": round(seconds, 3)}
            path = self.store.publish(folder, self.slot, _file_name(self.library), dependencies, about)
        finally:
            remove(folder)
        if seconds > _WORTH_SAYING_SECONDS:
            self.tell(f"built {self.library.title} in {seconds:.0f} s")
        return path

    def _make(self, folder: Path, deadline: float) -> Dependencies:
        """Compile until what was read is certainly what was recorded: somebody may be editing."""
        known = dict(self.known)
        for _ in range(_ATTEMPTS):
            began = time.time_ns()
            self._compile(folder, deadline)
            linked = self._link(folder, deadline)
            dependencies, settled = record([*self._files_read(folder), *linked], self._search(), began, known)
            if settled:
                return dependencies
            current = {read.path: read.digest for read in dependencies.reads}
            if any(current.get(path, digest) != digest for path, digest in self.known.items()):
                raise _ChangedError
            known.update(current)
        raise _ChangedError

    def _write_sources(self, folder: Path) -> None:
        for unit in self.library.units:
            if unit.text is not None:
                (folder / _source(unit)).write_text(unit.text, encoding="utf-8")
        for name, text in self.library.headers.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def _compile(self, folder: Path, deadline: float) -> None:
        jobs = [Job(unit.name, self._compile_command(unit), folder) for unit in self.library.units]
        outcomes = self._run(jobs, folder, deadline)
        failed = [outcome for outcome in outcomes if outcome.code != 0]
        if failed:
            raise self._compile_error(failed, folder)
        self._require([folder / _object(unit) for unit in self.library.units], outcomes)

    def _compile_command(self, unit: Unit) -> tuple[str, ...]:
        search = [f"-I{folder}" for folder in self.library.include_dirs]
        search += [word for folder in self.library.system_dirs for word in ("-isystem", str(folder))]
        return (
            *self.compilers[unit.language].command,
            *("-c", "-O3", "-fPIC", "-fdiagnostics-color=never", _STANDARD[unit.language]),
            # Not -I: a generated header named like one of the system's (time.h) must not stand in for it.
            *("-iquote", "."),
            *search,
            *self.library.flags,
            *unit.flags,
            *("-MD", "-MF", f"{unit.name}.d"),
            _source(unit) if unit.path is None else str(unit.path),
            *("-o", _object(unit)),
        )

    def _link(self, folder: Path, deadline: float) -> list[Path]:
        """Link, and give the libraries that were read, where the user asked for some."""
        trace = ("-Wl,-t",) if self.library.link_flags else ()
        command = (
            *self._linker().command,
            *_shared(self.library.allow_undefined or any("-fsanitize" in flag for flag in self.library.flags)),
            *(
                flag
                for flag in self.library.flags
                if flag.startswith(("-fsanitize", "-m", "-f", "-g", "-O", "-stdlib"))
            ),
            *(_object(unit) for unit in self.library.units),
            *self.library.link_flags,
            *trace,
            *("-o", _file_name(self.library)),
        )
        outcomes = self._run([Job("link", command, folder)], folder, deadline)
        if outcomes[0].code != 0:
            raise self._link_error(outcomes[0])
        self._require([folder / _file_name(self.library)], outcomes)
        return _traced(outcomes[0].output) if trace else []

    def _linker(self) -> Compiler:
        return self.compilers.get("c++") or self.compilers["c"]

    def _run(self, jobs: Sequence[Job], folder: Path, deadline: float) -> list[Outcome]:
        try:
            return run_jobs(jobs, compiler_environment(folder), deadline - time.monotonic())
        except TooLongError:
            raise self._error(
                f"the compiler ran for more than {_bound():g} s and was ended. Make the source simpler, or set "
                "ONEOP_BUILD_TIMEOUT to more seconds."
            ) from None
        except CannotStartError as error:
            raise self._error(
                f"the compiler does not start ({error}). Set $CXX and $CC to compilers that run."
            ) from None

    def _files_read(self, folder: Path) -> list[Path]:
        texts = [os.fsdecode((folder / f"{unit.name}.d").read_bytes()) for unit in self.library.units]
        files = {path for text in texts for path in parse_depfile(text, folder)}
        ours = (folder, *self.library.system_dirs)
        return [path for path in files if not any(path.is_relative_to(place) for place in ours)]

    def _search(self) -> list[Path]:
        """The folders in which a new file may come before one that was read."""
        beside = [Path(path).parent for path in self.known]
        listed = [os.environ.get(name, "") for name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")]
        return [
            *beside,
            *self.library.include_dirs,
            *(Path(f) for value in listed for f in value.split(os.pathsep) if f),
        ]

    def _clear_intermediates(self, folder: Path) -> None:
        (folder / "link.log").unlink()
        for unit in self.library.units:
            for name in (_object(unit), f"{unit.name}.d", f"{unit.name}.log"):
                (folder / name).unlink()

    def _require(self, files: Sequence[Path], outcomes: Sequence[Outcome]) -> None:
        missing = [file for file in files if not file.is_file()]
        if missing:
            command = shlex.join(outcomes[0].job.command[:1])
            raise self._error(
                f"`{command}` reports success but wrote no {missing[0].name}; it is no usable compiler. "
                "Set $CXX and $CC to compilers, or unset them to use the system's."
            )

    def _compile_error(self, failed: Sequence[Outcome], folder: Path) -> BuildError:
        raw = b"".join(outcome.output for outcome in failed)
        output = raw.decode("utf-8", "replace")
        log = self.store.keep_log(self.slot, b"".join(_transcript(outcome) for outcome in failed))
        name = self._compiler_of(failed[0]).name
        general = self._machine_error(failed, output, log)
        if general is not None:
            return general
        hint = self.library.explain(output) if self.library.explain is not None else None
        report = (
            diagnostics.compile_report(output, folder) or f"{name} ended with status {failed[0].code} and said nothing."
        )
        return self._error(
            f"{name} does not accept the source.\n{f'{hint}{chr(10)}' if hint else ''}{report}\n"
            f"Correct the source and run again.{_where(log)}"
        )

    def _link_error(self, outcome: Outcome) -> BuildError:
        output = outcome.output.decode("utf-8", "replace")
        log = self.store.keep_log(self.slot, _transcript(outcome))
        general = self._machine_error([outcome], output, log)
        if general is not None:
            return general
        missing = diagnostics.undefined_symbols(output)
        if missing:
            shown = ", ".join(f"`{name}`" for name in missing[:10]) + (
                f" and {len(missing) - 10} more" if missing[10:] else ""
            )
            return self._error(
                f"nothing defines {shown}. Define it in one of the sources, add the source that does to `kernels=`, or the "
                f"library to `libraries=`.{_where(log)}"
            )
        report = "\n".join(line for line in output.splitlines() if "error" in line or "cannot find" in line) or output
        return self._error(f"linking fails.\n{report}\nCorrect the libraries and flags and run again.{_where(log)}")

    def _machine_error(self, failed: Sequence[Outcome], output: str, log: Path | None) -> BuildError | None:
        """Errors that are not the source's: a full disk, a compiler that was killed."""
        if self.store.is_full():
            return self._folder_error("it is full: No space left on device")
        reason = diagnostics.disk_reason(output)
        if reason is not None:
            return self._folder_error(reason)
        number = next((n for outcome in failed if (n := diagnostics.killed_by(outcome.code, output)) is not None), None)
        if number is None:
            return None
        return self._error(
            f"the compiler was killed by signal {number}{_signal_reason(number)}. Nothing half-written is kept: run it "
            f"again, with fewer programs beside it if memory is short.{_where(log)}"
        )

    def _compiler_of(self, outcome: Outcome) -> Compiler:
        return next(self.compilers[unit.language] for unit in self.library.units if unit.name == outcome.job.name)

    def _tell_waiting(self, holder: str) -> None:
        self.tell(f"waiting for {holder}, which builds {self.library.title}")

    def _error(self, text: str) -> BuildError:
        return BuildError(f"cannot build {self.library.title}: {text}")

    def _folder_error(self, reason: str) -> BuildError:
        return self._error(
            f"the cache folder {self.store.root} cannot be used ({reason}). Make it writable and make room in it, or set "
            "ONEOP_CACHE to another folder."
        )


def _bound() -> float:
    text = os.environ.get("ONEOP_BUILD_TIMEOUT", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise BuildError(f"ONEOP_BUILD_TIMEOUT is `{text}`; it has to be a number of seconds above 0, such as 600.")
    return seconds


def _source(unit: Unit) -> str:
    return f"{unit.name}.unit{_SUFFIX[unit.language]}"


def _object(unit: Unit) -> str:
    return f"{unit.name}.o"


def _shared(allow_undefined: bool) -> tuple[str, ...]:
    if sys.platform == "darwin":
        return ("-dynamiclib", *(("-undefined", "dynamic_lookup") if allow_undefined else ()))
    return ("-shared", *(() if allow_undefined else ("-Wl,-z,defs",)))


def _traced(output: bytes) -> list[Path]:
    # Members of archives are listed as `(libx.a)x.o` or `libx.a(x.o)`.
    lines = [os.fsdecode(line).strip() for line in output.splitlines()]
    names = [re.sub(r"\(.*\)$", "", re.sub(r"^\((.*)\).*$", r"\1", line)) for line in lines]
    return [path for name in dict.fromkeys(names) if (path := Path(name)).is_absolute() and path.is_file()]


def _transcript(outcome: Outcome) -> bytes:
    return f"$ {shlex.join(outcome.job.command)}\n".encode("utf-8", "surrogateescape") + outcome.output + b"\n"


def _where(log: Path | None) -> str:
    return f" All that it printed: {log}" if log is not None else ""


def _signal_reason(number: int) -> str:
    return "; usually the machine ran out of memory" if number == signal.SIGKILL else f" ({signal.strsignal(number)})"
