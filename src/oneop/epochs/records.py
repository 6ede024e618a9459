"""What a watch leaves behind: one immutable record an epoch, and the diagnoses. Plain data, no torch."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

LONG_WAIT = 0.002
"""Seconds: a step that waits so long for its batch has waited."""

Severity = Literal["problem", "note"]


@dataclass(frozen=True)
class OperatorTime:
    """One operator in the sampled step of an epoch: its calls, and the seconds in it but not in operators it calls."""

    name: str
    calls: int
    seconds: float


@dataclass(frozen=True)
class Compilation:
    """One compilation by ``torch.compile``: of which function, for how long and, if it was not the first, why."""

    function: str
    file: str
    line: int
    seconds: float
    reason: str = ""


@dataclass(frozen=True)
class Denormals:
    """The share, from 0 to 1, of sampled numbers that are denormal; None where there is nothing to look at."""

    parameters: float | None
    gradients: float | None
    optimizer_state: float | None


@dataclass(frozen=True)
class ContextTensor:
    """A tensor that a ``torch.autograd.Function`` keeps as an attribute of its ctx, seen in a sampled step.

    ``is_output``: it is the function's own output, and so part of a reference cycle. ``outlives_step``: it was still
    there two steps later, when the variables of the loop had other values.
    """

    function: str
    attribute: str
    file: str
    line: int
    code: str
    bytes: int
    is_output: bool
    outlives_step: bool


@dataclass(frozen=True)
class Epoch:
    """What was seen in one epoch. Times in seconds, sizes in bytes; None means that it is not known.

    ``data`` + ``forward`` + ``backward`` + ``optimizer`` + ``other`` + ``watching`` = ``seconds``; ``first_wait`` is
    the part of ``data`` before the first batch, ``long_waits`` the share of the other batches that took
    ``LONG_WAIT`` or more, ``between`` the time from here to the next epoch. ``processor`` is
    the processor time of the training thread. ``disk_bytes`` came from a disk and ``requested_bytes`` were read, mostly
    from memory; both include the loader's workers. ``system_swap_bytes`` the machine
    swapped, and ``refaulted_bytes`` it had taken out of memory and had to read again. ``watched_steps`` are
    those in which forward, backward and optimizer were timed and whose graph was marked: all but in quick steps;
    ``backwards`` and ``retained_backwards`` count calls of backward in them.
    ``kept_graphs`` counts the marked losses and outputs of all epochs so
    far whose graph is alive at the end, ``kept_of_epoch`` those of this epoch. ``graph_nodes`` is the size of the graph
    of a sampled loss, ``autograd_nodes`` an estimate of all nodes that are alive. ``operators`` is one sampled step.
    """

    number: int
    steps: int
    watched_steps: int
    backwards: int
    complete: bool
    seconds: float
    between: float
    data: float
    first_wait: float
    long_waits: float
    forward: float
    backward: float
    optimizer: float
    other: float
    watching: float
    first_step: float
    median_step: float
    processor: float
    forward_is_measured: bool
    operators: tuple[OperatorTime, ...]
    live_tensors: int | None
    live_bytes: int | None
    kept_graphs: int
    kept_of_epoch: int
    graph_nodes: int | None
    autograd_nodes: int
    retained_backwards: int
    context_tensors: tuple[ContextTensor, ...]
    hooks: int
    resident_bytes: int
    available_bytes: int
    disk_bytes: int | None
    requested_bytes: int | None
    major_faults: int | None
    process_swap_bytes: int | None
    system_swap_bytes: int | None
    refaulted_bytes: int | None
    denormals: Denormals | None
    collector: float
    collections: tuple[int, int, int]
    threads: int
    compilations: tuple[Compilation, ...]
    compiling: float
    built_operators: tuple[str, ...]

    @property
    def per_step(self) -> float:
        """Seconds a step, without the watch's own: epochs of different lengths compare."""
        return (self.seconds - self.watching) / max(self.steps, 1)


@dataclass(frozen=True)
class Place:
    """Where something is held or done: what it is called, and the line of the user's file, as well as can be known."""

    name: str
    owner: str
    file: str | None = None
    line: int | None = None
    code: str | None = None
    module: str | None = None

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}" if self.file and self.line else self.file or ""
        code = f": {self.code}" if self.code else ""
        module = f" (module `{self.module}`)" if self.module else ""
        return f"{self.owner}{module}" + (f", {where}{code}" if where else "")


@dataclass(frozen=True)
class Diagnosis:
    """One cause, named: what happens, the evidence with its thresholds, what to do, and where.

    ``problem``: it costs time or memory in every epoch. ``note``: it explains something and needs no change.
    """

    kind: str
    severity: Severity
    summary: str
    evidence: tuple[str, ...]
    remedy: str
    places: tuple[Place, ...] = ()


def plain(epochs: tuple[Epoch, ...], diagnoses: tuple[Diagnosis, ...], verdict: str) -> dict[str, Any]:
    """The whole record as dictionaries, lists, numbers and texts, for JSON."""
    return {
        "epochs": [asdict(epoch) for epoch in epochs],
        "verdict": verdict,
        "diagnoses": [asdict(diagnosis) for diagnosis in diagnoses],
    }
