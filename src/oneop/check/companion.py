"""A second process, on a second core: it looks at the columns of exported programs while this one looks at PyTorch's.

It starts with the command and imports meanwhile what is slow to import. What it finds comes back cell by cell: where a
runtime takes the process down with it, the cells that were reached keep their results, and the others fail and say so.
"""

import contextlib
import fcntl
import functools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from oneop.check.collecting import rare_collections
from oneop.check.results import Finding, Result
from oneop.errors import OneopError

Progress = Callable[[str, int, int], None]
"""What is being looked at, the cells that are done, and all of them."""


@dataclass(frozen=True)
class Request:
    """What to look at: arguments of ``oneop.check.running.check``, and where the operator is defined."""

    file: str
    operator: str
    arguments: dict[str, Any]


class Companion:
    """The process. It is started at once, and again where it ended; leaving the ``with`` block ends it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="oneop-check-")
        self._start()

    def _start(self) -> None:
        self._connection, theirs = (_above_standard(end) for end in Pipe())
        with theirs:
            code = f"import sys; sys.path[:] = {sys.path!r}; from oneop.check import companion; companion.serve()"
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, str(theirs.fileno())],
                env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "TMPDIR": self._folder.name},  # two cores for two
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # what a definition file prints was printed once
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the one that asks, which then ends this one
                text=True,
                errors="replace",
            )
        threading.Thread(target=_relay, args=(self._process,), daemon=True).start()

    def __enter__(self) -> "Companion":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
        self._folder.cleanup()

    def end(self) -> None:
        """The next request starts another one."""
        self._connection.close()
        self._process.kill()  # it has nothing to put away: what is temporary lies in our folder
        self._process.wait()

    def ask(self, request: Request, on_progress: Progress) -> "Answer":
        """Has the process look; what it says is collected by a thread."""
        if self._process.poll() is not None:
            self._start()
        answer = Answer(self._process, self._connection)
        answer.send(request)
        answer.collect(on_progress)
        return answer


@dataclass
class Answer:
    """What has come back of one request."""

    process: "subprocess.Popen[str]"
    connection: Connection
    found: dict[tuple[str, str], Result] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str | None = None
    _at: str = "its start"
    _thread: threading.Thread | None = None

    def send(self, what: object) -> None:
        with contextlib.suppress(OSError):  # where the process has ended, the answer says so
            self.connection.send_bytes(pickle.dumps(what))

    def tell(self, crashed: bool) -> None:
        """Whether the kernels crashed outside Python: the process waits for this before it calls them."""
        self.send(crashed)

    def collect(self, on_progress: Progress) -> None:
        self._thread = threading.Thread(target=self._collect, args=(on_progress,), daemon=True)
        self._thread.start()

    def _collect(self, on_progress: Progress) -> None:
        while True:
            try:
                kind, said = pickle.loads(self.connection.recv_bytes())
            except (EOFError, OSError):
                self.error = f"the process that looks at it {_ending(self.process)} (in {self._at})"
                return
            if kind == "progress":
                self._at = said[0]
                on_progress(*said)
            elif kind == "result":
                self.found[said.property, said.column] = said
            else:
                self.notes, self.error = said
                return

    def wait(self) -> None:
        assert self._thread is not None
        self._thread.join()

    def result(self, row: str, column: str) -> Result:
        """After ``wait``: the cell's result; a failure where there is none."""
        found = self.found.get((row, column))
        if found is not None:
            return found
        return Result(row, column, "failed", finding=Finding(f"not looked at: {self.error}"))


def _above_standard(end: Connection) -> Connection:
    """A process that was started with a standard stream closed gives its number to whatever it opens next."""
    with end:
        return Connection(fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))


def _ending(process: "subprocess.Popen[str]") -> str:
    code = process.wait()
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _relay(process: "subprocess.Popen[str]") -> None:
    """Shows what the process says as if it were said here: a progress bar stays whole."""
    assert process.stderr is not None
    for line in process.stderr:
        print(line, end="", file=sys.stderr, flush=True)


class _AloneError(Exception):
    """The process that asks is gone."""


class _Asker:
    """The process that asks, as this one sees it."""

    def __init__(self, descriptor: int) -> None:
        self._connection = Connection(descriptor)

    def hear(self) -> Any:
        try:
            return pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise _AloneError from error

    def say(self, kind: str, said: object) -> None:
        try:
            self._connection.send_bytes(pickle.dumps((kind, said)))
        except OSError as error:
            raise _AloneError from error


def serve() -> None:
    """What the process runs: requests come and results go by the descriptor that it was given."""
    asker = _Asker(int(sys.argv[1]))
    _warm_up()
    with rare_collections(), contextlib.suppress(_AloneError):
        while True:
            _answer(asker, asker.hear())
    shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)  # the one that asked did not do it


def _answer(asker: _Asker, request: Request) -> None:
    @functools.cache
    def crashed() -> bool:
        return bool(asker.hear())

    try:
        from oneop import registry
        from oneop.check.running import check

        registry.load_file(request.file)
        operator = registry.operators()[request.operator]
        report = check(
            operator,
            **request.arguments,
            native=False,
            crashed=crashed,
            on_progress=lambda *said: asker.say("progress", said),
            on_result=lambda result: asker.say("result", result),
        )
    except _AloneError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        said = str(error) if isinstance(error, OneopError) else f"{type(error).__name__}: {error}"
        last: tuple[tuple[str, ...], str | None] = ((), f"the process that looks at it failed: {said}")
    else:
        last = (report.notes, None)
    crashed()  # what is said of it is read, whether it was of use or not
    asker.say("done", last)


def _warm_up() -> None:
    """Imports what exporting and running files takes, while the other process looks at the kernels alone."""
    import importlib.util

    from oneop.check import running  # noqa: F401
    from oneop.targets.models import model_runners

    if importlib.util.find_spec("onnx") is not None:
        for runner in model_runners():
            runner.missing()


def is_worth_it(targets: Collection[str] | None) -> bool:
    """Whether there is a second core, and a column for the process."""
    from oneop.check.columns import PYTORCH

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and (targets is None or set(targets) != {PYTORCH})
