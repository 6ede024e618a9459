"""The errors of a build, as a person needs them: what happened, where, what to do."""

import errno
import os
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oneop.errors import BuildError
from oneop.kernels import diagnostics
from oneop.kernels.cache import Cache
from oneop.kernels.inputs import INCLUDE, Library
from oneop.kernels.jobs import Outcome

_MOST_SYMBOLS = 10


@dataclass(frozen=True)
class Failures:
    library: Library
    store: Cache
    slot: str

    def error(self, text: str) -> BuildError:
        return BuildError(f"cannot build {self.library.title}: {text}")

    def folder(self, reason: str) -> BuildError:
        return self.error(
            f"the cache folder {self.store.root} cannot be used ({reason}). Make it writable and make room in it, or "
            "set ONEOP_CACHE to another folder."
        )

    def folder_error(self, error: OSError) -> BuildError:
        return self.folder(_reason(error))

    def held(self, holder: str, bound: float) -> BuildError:
        return self.error(
            f"waited {bound:g} s for {holder}, which is building the same. End that process if it hangs (its lock goes "
            "with it), or set ONEOP_BUILD_TIMEOUT to more seconds."
        )

    def too_long(self, bound: float) -> BuildError:
        return self.error(
            f"the compiler ran for more than {bound:g} s and was ended. Make the source simpler, or set "
            "ONEOP_BUILD_TIMEOUT to more seconds."
        )

    def cannot_start(self, reason: str) -> BuildError:
        return self.error(f"the compiler does not start ({reason}). Set $CXX and $CC to compilers that run.")

    def no_output(self, outcome: Outcome, file: Path) -> BuildError:
        return self.error(
            f"`{outcome.job.command[0]}` reports success but wrote no {file.name}, so it is no usable compiler. Set "
            "$CXX and $CC to compilers, or unset them to use the system's."
        )

    def compiling(self, failed: Sequence[Outcome], compiler: str, workplace: Path) -> BuildError:
        output, log = self._keep(failed)
        general = self._of_the_machine(failed, output, log)
        if general is not None:
            return general
        places = diagnostics.Places(glue=(workplace, INCLUDE), people=tuple(self.library.search_folders()))
        # What is wrong in a person's own file comes first; that a kernel is missing may only follow from it.
        hint = None if diagnostics.blames_people(output, places) else self._hint(output)
        report = (
            diagnostics.compile_report(output, places) or f"It ended with status {failed[0].code} and said nothing."
        )
        lines = [f"{compiler} refuses the source.", *([hint] if hint else []), report]
        if diagnostics.misses_header(output, places):
            lines += self._headers_for(failed)
        return self.error("\n".join([*lines, f"Correct the source and run again.{_where(log)}"]))

    def linking(self, failed: Outcome) -> BuildError:
        output, log = self._keep([failed])
        general = self._of_the_machine([failed], output, log)
        if general is not None:
            return general
        hint = self._hint(output)
        if hint is not None:
            return self.error(f"{hint}{_where(log)}")
        missing = diagnostics.undefined_symbols(output)
        if missing:
            more = f" and {len(missing) - _MOST_SYMBOLS} more" if len(missing) > _MOST_SYMBOLS else ""
            return self.error(
                f"nothing defines {', '.join(f'`{name}`' for name in missing[:_MOST_SYMBOLS])}{more}. Define it in one "
                f"of the sources, add the source that does to `kernels=`, or the library to `libraries=`.{_where(log)}"
            )
        report = diagnostics.link_report(output)
        return self.error(f"the linker fails.\n{report}\nCorrect the libraries and flags and run again.{_where(log)}")

    def _hint(self, output: str) -> str | None:
        return self.library.explain(output) if self.library.explain is not None else None

    def _headers_for(self, failed: Sequence[Outcome]) -> list[str]:
        """A line that names the generated headers of the kernels in these sources: they are called as operators are."""
        names = {outcome.job.name for outcome in failed}
        texts = [unit.text or "" for unit in self.library.units if unit.name in names]
        found = sorted(name for name in self.library.headers if any(f'#include "{name}"\n' in text for text in texts))
        if not found:
            return []
        are = "header here is" if len(found) == 1 else "headers here are"
        return [f"The generated {are}: {', '.join(found)}."]

    def _keep(self, failed: Sequence[Outcome]) -> tuple[str, Path | None]:
        log = self.store.keep_log(self.slot, b"\n".join(_transcript(outcome) for outcome in failed))
        return b"".join(outcome.output for outcome in failed).decode("utf-8", "replace"), log

    def _of_the_machine(self, failed: Sequence[Outcome], output: str, log: Path | None) -> BuildError | None:
        """Errors that are not the source's: a full disk, a compiler that was killed."""
        if self.store.is_full():
            return self.folder(f"it is full: {os.strerror(errno.ENOSPC)}")
        reason = diagnostics.disk_reason(output)
        if reason is not None:
            return self.folder(reason)
        signals = [number for outcome in failed if (number := diagnostics.killed_by(outcome.code, output)) is not None]
        if not signals:
            return None
        return self.error(
            f"the compiler was killed by signal {signals[0]}{_likely(signals[0])}. Nothing half-written is kept: run "
            f"it again, with fewer programs beside it if memory is short.{_where(log)}"
        )


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"it is full: {error.strerror}"
    if error.errno == errno.EROFS:
        return "it is read-only"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"{error.filename} needs a folder where there is a file"
    return str(error.strerror or error)


def _transcript(outcome: Outcome) -> bytes:
    return os.fsencode(f"$ {shlex.join(outcome.job.command)}\n") + outcome.output


def _where(log: Path | None) -> str:
    return f" All that it printed: {log}" if log is not None else ""


def _likely(number: int) -> str:
    return "; usually the machine ran out of memory" if number == signal.SIGKILL else f" ({signal.strsignal(number)})"
