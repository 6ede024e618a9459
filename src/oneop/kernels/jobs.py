"""Running compilers side by side: bounded in number and time, and killed with their children if we are interrupted."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_POLL_SECONDS = 0.004


@dataclass(frozen=True)
class Job:
    """A command to run in `folder`; what it prints goes to `<name>.log` there."""

    name: str
    command: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class Outcome:
    job: Job
    code: int  # negative: the signal that ended it
    output: bytes


class TooLongError(Exception):
    """The jobs did not end within their bound."""


class CannotStartError(Exception):
    """A program could not be run at all."""


def run_jobs(jobs: Sequence[Job], environment: Mapping[str, str], bound: float) -> list[Outcome]:
    """Run every job, at most one for each core at a time; stop early after a failure. In the order of `jobs`."""
    deadline = time.monotonic() + bound
    waiting = list(reversed(jobs))
    running: dict[subprocess.Popen[bytes], Job] = {}
    codes: dict[str, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < _cores():
                job = waiting.pop()
                with _interruptions_deferred():  # a compiler that starts is one that we can end
                    running[_start(job, environment)] = job
            for process in [process for process in running if process.poll() is not None]:
                codes[running.pop(process).name] = process.returncode
                if process.returncode != 0:
                    waiting.clear()  # what already runs may end: its messages help as well
            if time.monotonic() > deadline:
                raise TooLongError
            time.sleep(_POLL_SECONDS)
    finally:
        for process in running:
            _kill(process)
    return [Outcome(job, codes[job.name], _log(job).read_bytes()) for job in jobs if job.name in codes]


def _start(job: Job, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    with _log(job).open("wb") as log:
        try:
            # A group of its own: a compiler is a driver and its children, and all of them must go.
            return subprocess.Popen(
                job.command,
                cwd=job.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        except OSError as error:  # not to be taken for trouble with the cache folder
            raise CannotStartError(f"{job.command[0]}: {error.strerror}") from error


@contextmanager
def _interruptions_deferred() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the block. Only the main thread is ever interrupted."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if caught:
            usual(*caught[0])


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _log(job: Job) -> Path:
    return job.folder / f"{job.name}.log"


def _cores() -> int:
    return os.cpu_count() or 1
