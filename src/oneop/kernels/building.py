"""From sources to a shared library in the cache: compiled once, by one process, whatever happens to it."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oneop.errors import BuildError
from oneop.kernels import commands, locks
from oneop.kernels.cache import Cache, cache_root, remove, slot_name
from oneop.kernels.compilers import Compiler, Language, compiler_environment, find_compiler
from oneop.kernels.console import say
from oneop.kernels.dependencies import Dependencies, parse_depfile, record
from oneop.kernels.failures import Failures
from oneop.kernels.inputs import Library, Unit, known_digests, library_key
from oneop.kernels.jobs import CannotStartError, Job, Outcome, TooLongError, run_jobs

__all__ = ["Compiler", "Language", "Library", "Unit", "build", "find_compiler"]

_ATTEMPTS = 5
_WORTH_SAYING_SECONDS = 5.0


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
        known = known_digests(library)
        slot = slot_name(library.stem, library_key(library, compilers, known))
        found = store.lookup(slot, library.file_name)
        if found is not None:
            return found
        with contextlib.suppress(_ChangedError):  # the key is another one now
            return _Builder(library, store, compilers, known, slot, on_start or say, _bound()).run()
    raise BuildError(f"cannot build {library.title}: the sources kept changing while they were compiled. Run it again.")


def _compilers(library: Library, store: Cache) -> dict[Language, Compiler]:
    return {language: find_compiler(language, memory=store.compilers) for language in library.languages}


def _bound() -> float:
    text = os.environ.get("ONEOP_BUILD_TIMEOUT", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise BuildError(f"ONEOP_BUILD_TIMEOUT is `{text}`; it has to be a number of seconds above 0, such as 600.")
    return seconds


@dataclass(frozen=True)
class _Builder:
    library: Library
    store: Cache
    compilers: Mapping[Language, Compiler]
    known: Mapping[str, str]
    slot: str
    tell: Callable[[str], None]
    bound: float
    failures: Failures = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "failures", Failures(self.library, self.store, self.slot))

    def run(self) -> Path:
        try:
            with locks.exclusive(self.store.lock_path(self.slot), self.bound, self._tell_waiting):
                found = self.store.lookup(self.slot, self.library.file_name)
                return found if found is not None else self._build()
        except locks.StillHeldError as held:
            raise self.failures.held(held.holder, self.bound) from None
        except OSError as error:
            raise self.failures.folder_error(error) from error

    def _tell_waiting(self, holder: str) -> None:
        self.tell(f"waiting for {holder}, which builds {self.library.title}")

    def _build(self) -> Path:
        names = ", ".join(compiler.name for compiler in self.compilers.values())
        self.tell(f"building {self.library.title} ({names}{'; ' if self.library.note else ''}{self.library.note})")
        start = time.monotonic()
        workplace = self.store.workplace(self.slot)
        try:
            self._write_sources(workplace)
            dependencies = self._make(workplace, start + self.bound)
            seconds = time.monotonic() - start
            about = {"title": self.library.title, "compiler": names, "seconds": round(seconds, 3)}
            path = self.store.publish(workplace, self.slot, self.library.file_name, dependencies, about)
        finally:
            remove(workplace)
        if seconds > _WORTH_SAYING_SECONDS:
            self.tell(f"built {self.library.title} in {seconds:.0f} s")
        return path

    def _write_sources(self, workplace: Path) -> None:
        texts = {commands.source_name(unit): unit.text for unit in self.library.units if unit.text is not None}
        for name, text in {**self.library.headers, **texts}.items():
            path = workplace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))  # a text may name a file whose name is not UTF-8

    def _make(self, workplace: Path, deadline: float) -> Dependencies:
        """Compile until what was read is certainly what is recorded: somebody may be editing."""
        known = dict(self.known)
        for _ in range(_ATTEMPTS):
            began = time.time_ns()
            self._compile(workplace, deadline)
            linked = self._link(workplace, deadline)
            read = [*self._files_read(workplace), *linked]
            try:
                dependencies, settled = record(read, self.library.search_folders(), began, known)
            except FileNotFoundError:  # deleted meanwhile
                continue
            if settled:
                self._clear_intermediates(workplace)
                return dependencies
            current = {read.path: read.digest for read in dependencies.reads}
            if any(current.get(path, digest) != digest for path, digest in self.known.items()):
                raise _ChangedError
            known.update(current)
        raise _ChangedError

    def _compile(self, workplace: Path, deadline: float) -> None:
        units = {unit.name: unit for unit in self.library.units}
        jobs = [
            Job(name, commands.compile_command(self.library, unit, self.compilers), workplace)
            for name, unit in units.items()
        ]
        outcomes = self._run(jobs, workplace, deadline)
        failed = [outcome for outcome in outcomes if outcome.code != 0]
        if failed:
            compiler = self.compilers[units[failed[0].job.name].language]
            raise self.failures.compiling(failed, compiler.name, workplace)
        for outcome in outcomes:
            self._require(outcome, workplace / commands.object_name(units[outcome.job.name]))
            if outcome.output.strip():
                warnings = os.fsdecode(outcome.output).encode(errors="replace").decode()
                self.tell(f"the compiler has something to say about {self.library.title}:\n{warnings.rstrip()}")

    def _link(self, workplace: Path, deadline: float) -> list[Path]:
        """Link, and give the libraries that were read where the user asked for some."""
        job = Job(self.library.file_name, commands.link_command(self.library, self.compilers), workplace)
        (outcome,) = self._run([job], workplace, deadline)
        if outcome.code != 0:
            raise self.failures.linking(outcome)
        self._require(outcome, workplace / self.library.file_name)
        return commands.traced_files(outcome.output) if commands.traces(self.library) else []

    def _run(self, jobs: Sequence[Job], workplace: Path, deadline: float) -> list[Outcome]:
        try:
            return run_jobs(jobs, compiler_environment(workplace), deadline - time.monotonic())
        except TooLongError:
            raise self.failures.too_long(self.bound) from None
        except CannotStartError as error:
            raise self.failures.cannot_start(str(error)) from None

    def _require(self, outcome: Outcome, file: Path) -> None:
        if not file.is_file():
            raise self.failures.no_output(outcome, file)

    def _files_read(self, workplace: Path) -> list[Path]:
        depfiles = [workplace / commands.depfile_name(unit) for unit in self.library.units]
        files = {path for file in depfiles for path in parse_depfile(os.fsdecode(file.read_bytes()), workplace)}
        unwatched = (workplace, *self.library.system_dirs)
        return [path for path in files if not any(path.is_relative_to(folder) for folder in unwatched)]

    def _clear_intermediates(self, workplace: Path) -> None:
        (workplace / f"{self.library.file_name}.log").unlink()
        for unit in self.library.units:
            for name in (commands.object_name(unit), commands.depfile_name(unit), f"{unit.name}.log"):
                (workplace / name).unlink()
