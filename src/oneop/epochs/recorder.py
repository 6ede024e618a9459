"""Turns what happens in a training loop into one record an epoch. Knows no loader, model or hook: it is told."""

import math
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn
from torch.optim import Optimizer

from oneop.epochs.budget import Budget
from oneop.epochs.collector import CollectorTime, Objects, count_objects
from oneop.epochs.compilations import Compilations
from oneop.epochs.denormals import denormal_shares
from oneop.epochs.graphs import Graphs
from oneop.epochs.hooks import Key, count_hooks
from oneop.epochs.operators import OperatorSampler
from oneop.epochs.phases import AHEAD, BACKWARD, DATA, FORWARD, OPTIMIZER, OTHER, WATCHING, PhaseClock
from oneop.epochs.records import LONG_WAIT, Denormals, Epoch, OperatorTime
from oneop.epochs.system import Counters, System

STEPS_PART = 0.4
"""The part of the budget that watching steps may take; the rest is for samples."""


@dataclass(slots=True)
class _Running:
    """The epoch under way. ``first`` and ``rest`` are the phases of its watched steps, ``rest_seconds`` their time."""

    number: int
    begun: float
    processor: float
    counters: Counters
    collector: float
    collections: tuple[int, ...]
    by_hand: bool
    steps: list[float] = field(default_factory=list)
    step_begun: float | None = None
    data: float = 0.0
    data_begun: float | None = None
    long_waits: int = 0
    first_wait: float | None = None
    delivers: bool = False
    first: Counter[str] = field(default_factory=Counter)
    rest: Counter[str] = field(default_factory=Counter)
    rest_seconds: float = 0.0
    watching: float = 0.0
    watched: int = 0
    next_watched: int = 0
    backwards: int = 0
    retained: int = 0
    forwards: int = 0
    graph_is_sampled: bool = False
    operators: tuple[OperatorTime, ...] | None = None


@dataclass(frozen=True)
class Tools:
    """Where a recorder's time and readings come from; a test puts others in their place."""

    now: Callable[[], float] = time.perf_counter
    processor: Callable[[], float] = time.thread_time
    system: System = field(default_factory=System)


class Recorder:
    """Is told of epochs, batches, forward, backward and optimizer steps, and keeps ``epochs``.

    ``only_training``: an iteration without any backward is no epoch.
    """

    def __init__(
        self,
        model: nn.Module | None,
        optimizers: Sequence[Optimizer],
        share: float,
        tools: Tools | None = None,
        *,
        only_training: bool = False,
    ) -> None:
        self.model = model
        self._only_training = only_training
        self.optimizers = list(optimizers)
        self.tools = tools or Tools()
        self._now = self.tools.now
        self.epochs: list[Epoch] = []
        self.graphs = Graphs()
        self.operators = OperatorSampler()
        self.compilations = Compilations(self.tools.now)
        self.collector = CollectorTime(self.tools.now)
        self.first_hooks: dict[Key, int] = {}
        self.last_hooks: dict[Key, int] = {}
        self.first_objects: Objects | None = None
        self.on_epoch: Callable[[], None] = lambda: None
        self.ears: list[Callable[[bool], None]] = []
        self.compilations.on_first = lambda: self._listen(True)
        self.listens = False
        self._random = random.Random(0)
        self._step_share = STEPS_PART * share
        self._step_cost = 0.0
        self._budget = Budget((1 - STEPS_PART) * share if share < 1 else math.inf, self.tools.now)
        self._clock = PhaseClock(self.tools.now)
        self._thread = threading.get_ident()
        self._running: _Running | None = None
        self._ended: tuple[int, float] | None = None

    def prepare(self) -> None:
        """Takes the samples that every later one is compared with: before the first epoch, at no epoch's cost."""
        self._step_cost = self._cost_of_watching()
        if self.operators.is_possible:
            self.operators.start()  # the first start of a profiler is slow
            self.operators.stop()
        with self._budget.spending("objects"):
            self.first_objects = count_objects()
        if self.model is not None:
            with self._budget.spending("denormals"):
                denormal_shares(self.model, self.optimizers)
            with self._budget.spending("hooks"):
                self.first_hooks = self.last_hooks = count_hooks(self.model, self.optimizers)

    def _cost_of_watching(self) -> float:
        """Seconds that it takes to watch one step, about: the clock's part, twice over for all that calls it."""
        clock, count = PhaseClock(self.tools.now), 64
        begin = self._now()
        for _ in range(count):
            clock.start(AHEAD)
            for phase in (FORWARD, BACKWARD, OPTIMIZER):
                clock.enter(phase)
                clock.leave(phase)
            clock.take()
        return 3 * (self._now() - begin) / count

    @property
    def is_by_hand(self) -> bool:
        """An epoch is under way that was begun by a call, not by a loader."""
        return self._running is not None and self._running.by_hand

    def epoch_begins(self, by_hand: bool = False) -> int:
        if self._running is not None:
            self.epoch_ends(complete=self._running.by_hand)
        if self._ended is not None:
            index, ended = self._ended
            self.epochs[index] = replace(self.epochs[index], between=self._now() - ended)
        self._budget.start()
        self._thread = threading.get_ident()
        self.compilations.attend()
        self._listen(True)
        self._running = _Running(
            number=len(self.epochs) + 1,
            begun=self._now(),
            processor=self.tools.processor(),
            counters=self.tools.system.counters(),
            collector=self.collector.seconds,
            collections=tuple(self.collector.collections),
            by_hand=by_hand,
        )
        return self._running.number

    def epoch_ends(self, complete: bool = True, number: int | None = None) -> None:
        running = self._running
        if running is None or number not in (None, running.number):
            return
        self.loading_ends()
        self._step_ends(running)
        self._running = None
        self._listen(True)
        if self._only_training and not running.backwards:
            self.compilations.take()
            return  # validation: part of the time between two epochs
        self._ended = (len(self.epochs), self._now())
        self.epochs.append(self._record(running, complete))
        self.on_epoch()

    def waits(self) -> None:
        """The loop asks for a batch."""
        if (running := self._here()) is not None:
            self._step_ends(running)
            running.data_begun = self._now()

    def delivered(self, first_wait: float) -> None:
        """The loop has got a batch, ``first_wait`` seconds after the epoch's data was asked for if it is the first."""
        if (running := self._here()) is not None:
            self.loading_ends()
            running.delivers = True
            if running.first_wait is None:
                running.first_wait = first_wait
            if len(running.steps) >= running.next_watched:
                self._watched_step_begins(running)
            running.step_begun = self._now()

    def passes_over(self) -> bool:
        """``waits``, between two steps of a loader that are not watched: whether it was that. Called in every step."""
        running = self._running
        if (
            self.listens
            or running is None
            or running.step_begun is None
            or not running.delivers
            or len(running.steps) + 1 >= running.next_watched
            or threading.get_ident() != self._thread
        ):
            return False
        running.data_begun = now = self._now()
        running.steps.append(now - running.step_begun)
        running.step_begun = None
        self.graphs.step_ended()
        return True

    def passed_over(self) -> None:
        """``delivered``, after ``passes_over``."""
        running = self._running
        if running is None or running.data_begun is None:
            return  # what fetches batches has ended the epoch
        running.step_begun = now = self._now()
        seconds = now - running.data_begun
        running.data_begun = None
        running.data += seconds
        if seconds >= LONG_WAIT:
            running.long_waits += 1

    def loading_begins(self) -> None:
        """Data is loaded, in a step or between two."""
        if (running := self._here()) is not None:
            running.data_begun = self._now()
            if self.listens:
                self._clock.enter(DATA)

    def loading_ends(self) -> None:
        if (running := self._here()) is not None and running.data_begun is not None:
            seconds = self._now() - running.data_begun
            running.data_begun = None
            running.data += seconds
            running.long_waits += seconds >= LONG_WAIT and bool(running.steps)
            if running.step_begun is not None:
                running.step_begun += seconds
            if self.listens:
                self._clock.leave(DATA)

    def forward_begins(self) -> None:
        if self.listens and (running := self._here()) is not None:
            running.forwards += 1
            self._clock.enter(FORWARD)

    def forward_ends(self, output: Any) -> None:
        if self.listens and (running := self._here()) is not None:
            self._clock.leave(FORWARD)
            self.graphs.saw_output(running.number, output)

    def backward_begins(self, outputs: Sequence[Any], retains: bool) -> bool:
        """Whether ``backward_ends`` is to be called."""
        running = self._running
        if running is None:
            return False
        running.backwards += 1
        running.retained += retains
        if running.step_begun is None and not running.delivers and self._here() is not None:
            self._watched_step_begins(running)
            running.step_begun = self._now()
        if not self.listens or self._here() is None:
            return False
        self._clock.rebase(OTHER)
        self.graphs.saw_loss(running.number, outputs)
        if (
            not running.graph_is_sampled
            and not self.operators.is_running
            and self._is_ordinary_step(running)
            and self._budget.affords("graph")
        ):
            running.graph_is_sampled = True
            with self._clock.phase(WATCHING), self._budget.spending("graph"):
                self.graphs.sample(running.number, outputs)
        self._clock.enter(BACKWARD)
        return True

    def backward_ends(self) -> None:
        if self.listens and self._here() is not None:
            self._clock.leave(BACKWARD)

    def optimizer_begins(self) -> None:
        if self.listens and self._here() is not None:
            self._clock.enter(OPTIMIZER)

    def optimizer_ends(self) -> None:
        running = self._running
        if running is None or (running.delivers and not self.listens) or self._here() is None:
            return
        if self.listens:
            self._clock.leave(OPTIMIZER)
        if not running.delivers:  # a plain loop: the optimizer's steps are the steps
            self._step_ends(running)
            if len(running.steps) >= running.next_watched:
                self._watched_step_begins(running)
            running.step_begun = self._now()

    def count_objects(self) -> None:
        """Completes the last epoch with what only a look at all objects tells: after it, at no epoch's cost."""
        if self.epochs and self.epochs[-1].live_tensors is None:
            objects = count_objects()
            self.epochs[-1] = replace(self.epochs[-1], live_tensors=objects.tensors, live_bytes=objects.bytes)

    def _listen(self, wanted: bool) -> None:
        """Puts what listens in its place, or takes it away: what is not there costs nothing."""
        for ear in self.ears:
            ear(wanted)

    def _here(self) -> _Running | None:
        return self._running if threading.get_ident() == self._thread else None

    def _is_ordinary_step(self, running: _Running) -> bool:
        """Not the epoch's first, which may warm up, unless epochs have one step."""
        return bool(running.steps) or (bool(self.epochs) and self.epochs[-1].steps == 1)

    def _watched_step_begins(self, running: _Running) -> None:
        if (
            running.operators is None
            and self._is_ordinary_step(running)
            and self.operators.is_possible
            and self._budget.affords("operators")
        ):
            begin = self._now()
            self.operators.start()
            running.watching += self._now() - begin
        running.next_watched = len(running.steps) + self._stride(running)
        self.listens = True
        self._listen(True)
        self._clock.start(AHEAD)

    def _stride(self, running: _Running) -> int:
        """How many steps on the next one is watched: all, where that costs little beside what a step takes.

        Drawn around what it should be on average: every so many steps something else may happen.
        """
        if not running.steps:
            return 1
        step = (self._now() - running.begun) / len(running.steps)
        stride = max(math.ceil(self._step_cost / max(self._step_share * step, 1e-9)), 1)
        return self._random.randint(1, 2 * stride - 1)

    def _step_ends(self, running: _Running) -> None:
        if running.step_begun is None:
            return
        end = self._now()
        seconds = end - running.step_begun
        running.step_begun = None
        if self.listens:
            seconds = self._watched_step_ends(running, seconds, end)
        running.steps.append(seconds)
        self.graphs.step_ended()

    def _watched_step_ends(self, running: _Running, seconds: float, end: float) -> float:
        """The seconds of the step without the watch's own."""
        self.listens = False
        if running.delivers and running.backwards:
            self._listen(False)  # until the next watched step
        phases = self._clock.take()
        phases.pop(DATA, None)  # counted already
        watching = phases.pop(WATCHING, 0.0)
        running.watching += watching
        seconds -= watching
        running.watched += 1
        if running.steps:
            running.rest.update(phases)
            running.rest_seconds += seconds
        else:
            running.first.update(phases)
        if self.operators.is_running:
            running.operators = self.operators.stop()
            took = self._now() - end
            running.watching += took
            self._budget.spend("operators", took)
        return seconds

    def _phases(self, running: _Running) -> dict[str, float]:
        """Seconds by phase: those of steps that were not watched are shared out as in those that were."""
        rest = sum(running.steps[1:])
        scale = rest / running.rest_seconds if running.rest_seconds else 0.0
        return {phase: running.first[phase] + scale * running.rest[phase] for phase in (*running.first, *running.rest)}

    def _record(self, running: _Running, complete: bool) -> Epoch:
        ended = self._now()
        processor = self.tools.processor() - running.processor
        phases = self._phases(running)
        counters, levels = self.tools.system.counters(), self.tools.system.levels()
        compilations, compiling, built = self.compilations.take()
        self.graphs.epoch_ended()
        self.graphs.forget(running.number)
        objects, denormals = self._samples_between(running.number)
        seconds, measured = ended - running.begun, running.forwards > 0
        forward = phases.get(FORWARD, 0.0) if measured else phases.get(AHEAD, 0.0)
        backward, optimizer = phases.get(BACKWARD, 0.0), phases.get(OPTIMIZER, 0.0)
        steps = len(running.steps)
        counts = {epoch.number: epoch.steps for epoch in self.epochs} | {running.number: steps}
        return Epoch(
            number=running.number,
            steps=steps,
            watched_steps=running.watched,
            backwards=running.backwards,
            complete=complete,
            seconds=seconds,
            between=0.0,
            data=running.data,
            first_wait=running.first_wait or 0.0,
            long_waits=running.long_waits / max(steps - 1, 1),
            forward=forward,
            backward=backward,
            optimizer=optimizer,
            other=max(seconds - running.data - forward - backward - optimizer - running.watching, 0.0),
            watching=running.watching,
            first_step=running.steps[0] if running.steps else 0.0,
            median_step=statistics.median(running.steps) if running.steps else 0.0,
            processor=processor,
            forward_is_measured=measured,
            operators=running.operators or (),
            live_tensors=objects.tensors if objects else None,
            live_bytes=objects.bytes if objects else None,
            kept_graphs=self.graphs.kept(),
            kept_of_epoch=self.graphs.kept(running.number),
            graph_nodes=self.graphs.size(running.number),
            autograd_nodes=self.graphs.alive_nodes(counts),
            retained_backwards=running.retained,
            context_tensors=self.graphs.context(running.number),
            hooks=sum(self.last_hooks.values()),
            resident_bytes=levels.resident_bytes,
            available_bytes=levels.available_bytes,
            disk_bytes=_grown(running.counters.disk_bytes, counters.disk_bytes),
            requested_bytes=_grown(running.counters.requested_bytes, counters.requested_bytes),
            major_faults=_grown(running.counters.major_faults, counters.major_faults),
            process_swap_bytes=levels.process_swap_bytes,
            system_swap_bytes=_grown(running.counters.system_swap_bytes, counters.system_swap_bytes),
            refaulted_bytes=_grown(running.counters.refaulted_bytes, counters.refaulted_bytes),
            denormals=denormals,
            collector=self.collector.seconds - running.collector,
            collections=_three(self.collector.collections, running.collections),
            threads=levels.threads,
            compilations=compilations,
            compiling=compiling,
            built_operators=built,
        )

    def _samples_between(self, number: int) -> tuple[Objects | None, Denormals | None]:
        """What is looked at after an epoch has ended, as far as the budget goes; hooks always, they cost little."""
        objects: Objects | None = None
        denormals: Denormals | None = None
        if self.model is not None:
            with self._budget.spending("hooks"):
                self.last_hooks = count_hooks(self.model, self.optimizers)
            if number == 1 or self._budget.affords("denormals"):
                with self._budget.spending("denormals"):
                    denormals = denormal_shares(self.model, self.optimizers)
        if self._budget.affords("objects"):
            with self._budget.spending("objects"):
                objects = count_objects()
        return objects, denormals


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(after - before, 0)


def _three(after: Sequence[int], before: Sequence[int]) -> tuple[int, int, int]:
    first, second, third = (now - then for now, then in zip(after, before, strict=True))
    return first, second, third
