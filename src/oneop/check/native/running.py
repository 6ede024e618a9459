"""Runs the driver over cases and reads what it says: events, and between them what a sanitizer prints."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from pathlib import Path
from typing import Any

from oneop.check.cases import Case
from oneop.check.native import casefile
from oneop.check.native.programs import Sanitizer
from oneop.errors import CallError

SECONDS = 30.0
"""How long the driver may say nothing before what it does counts as hanging; four times that with a sanitizer."""
_CRASHES = 3
_LINES = 100_000  # a kernel that prints without end hangs, too
_MARK = b"@oneop "
_NO_ADDRESSES = "unexpected memory mapping"


class Phase(IntFlag):
    """The questions of driver.h."""

    VALUES = 1
    REPEATED = 2
    FILLS = 4
    THREADS = 8
    ALIGNMENT = 16
    CALLERS = 32
    MEMORY = 64


ALL = ~Phase(0)
PHASES: dict[Sanitizer | None, Phase] = {
    None: ALL,
    "address": Phase.VALUES | Phase.FILLS | Phase.THREADS | Phase.ALIGNMENT,
    "thread": Phase.THREADS | Phase.CALLERS,
}

_OPTIONS: dict[Sanitizer | None, dict[str, str]] = {
    None: {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"},  # glibc fills no memory that comes from there
    "address": {
        "ASAN_OPTIONS": (
            "halt_on_error=0:detect_stack_use_after_return=1:allocator_may_return_null=1:print_legend=0:color=never"
            ":exitcode=0:detect_leaks=1"
        ),
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=0:color=never",
        "LSAN_OPTIONS": "exitcode=0:print_suppressions=0",
    },
    "thread": {"TSAN_OPTIONS": "halt_on_error=0:exitcode=0:color=never:history_size=4"},
}


@dataclass
class Log:
    """All that was said, in order: events as dictionaries, other lines as text."""

    said: list[dict[str, Any] | str] = field(default_factory=list)
    outputs: bytes = b""
    not_run: int = 0

    def events(self, name: str) -> Iterator[dict[str, Any]]:
        return (item for item in self.said if isinstance(item, dict) and item["event"] == name)


def run(
    program: Path,
    launcher: Path,
    library: Path,
    cases: Sequence[Case],
    sanitizer: Sanitizer | None = None,
    phases: Phase | None = None,
    seconds: float | None = None,
) -> Log:
    """Drives the cases. A case in which the program dies or hangs is left out when it goes on with the next.

    ``launcher`` is the driver without a sanitizer, which can start another program with addresses that are not random.
    """
    limit = seconds if seconds is not None else SECONDS * (1 if sanitizer is None else 4)
    asked = PHASES[sanitizer] if phases is None else phases
    with tempfile.TemporaryDirectory(prefix="oneop-check-") as folder:
        file, outputs = Path(folder, "cases"), Path(folder, "outputs")
        casefile.write(file, cases)
        outputs.touch()
        arguments = [str(library), str(file), str(outputs), str(int(asked & Phase(127)))]
        log = _Runner([str(program)], launcher, arguments, sanitizer, limit, len(cases)).run()
        log.outputs = outputs.read_bytes()
    return log


@dataclass
class _Runner:
    command: list[str]
    launcher: Path
    arguments: list[str]
    sanitizer: Sanitizer | None
    limit: float
    count: int
    log: Log = field(default_factory=Log)

    def run(self) -> Log:
        first, crashes = 0, 0
        while True:
            begin = len(self.log.said)
            code, hangs = self._once(first)
            said = self.log.said[begin:]
            if any(isinstance(item, dict) and item["event"] == "end" for item in said) and code == 0:
                return self.log
            if self._needs_fixed_addresses(said):
                del self.log.said[begin:]
                self.command = [str(self.launcher), "--fixed-addresses", *self.command]
                continue
            at = next((item for item in reversed(said) if isinstance(item, dict) and item["event"] == "at"), None)
            if at is None:
                text = "\n".join(item for item in said if isinstance(item, str)).strip()
                raise CallError(
                    f"the program that drives kernels ended with status {code}: {text or 'it said nothing'}"
                )
            crashes += 1
            self.log.said.append({**at, "event": "crash", "hangs": hangs, "seconds": self.limit, "status": code})
            first = at["case"] + 1
            if at["phase"] in ("callers", "memory") or first >= self.count:
                return self.log
            if crashes >= _CRASHES or hangs:
                self.log.not_run = self.count - first
                return self.log

    def _needs_fixed_addresses(self, said: Sequence[dict[str, Any] | str]) -> bool:
        return (
            self.sanitizer == "thread"
            and len(self.command) == 1
            and any(isinstance(item, str) and _NO_ADDRESSES in item for item in said)
        )

    def _once(self, first: int) -> tuple[int, bool]:
        """One run from a case on: its exit status, and whether it was ended because it hung."""
        process = subprocess.Popen(
            [*self.command, *self.arguments, str(first)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_OPTIONS[self.sanitizer]},
            start_new_session=True,
        )
        try:
            hangs = not self._read(process)
            if hangs:
                _end(process)
            return process.wait(), hangs
        finally:
            _end(process)
            assert process.stdout is not None
            process.stdout.close()

    def _read(self, process: "subprocess.Popen[bytes]") -> bool:
        """Reads until the end. False where nothing is said for too long."""
        assert process.stdout is not None
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            last = time.monotonic()
            while True:
                idle = not selector.select(max(last + self.limit - time.monotonic(), 0))
                if idle or len(self.log.said) > _LINES:
                    return False
                data = os.read(process.stdout.fileno(), 1 << 16)
                last = time.monotonic()
                *lines, rest = (rest + data).split(b"\n")
                for line in [*lines, rest] if not data else lines:
                    self._take(line)
                if not data:
                    return True

    def _take(self, line: bytes) -> None:
        if line.startswith(_MARK):
            self.log.said.append(json.loads(line[len(_MARK) :].decode("utf-8", "replace")))
        elif line:
            self.log.said.append(line.decode("utf-8", "replace"))


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
