"""Turns what happens in a training loop into one record an epoch. Knows no loader, model or hook: it is told."""

import statistics
import threading
import time
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
from oneop.epochs.records import Denormals, Epoch, OperatorTime
from oneop.epochs.system import Reading, System


@dataclass
class _Running:
    """The epoch under way."""

    number: int
    begun: float
    processor: float
    reading: Reading
    collector: float
    collections: tuple[int, ...]
    by_hand: bool
    steps: list[float] = field(default_factory=list)
    step_begun: float | None = None
    first_wait: float | None = None
    delivers: bool = False
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
        self.epochs: list[Epoch] = []
        self.graphs = Graphs()
        self.operators = OperatorSampler()
        self.compilations = Compilations(self.tools.now)
        self.collector = CollectorTime(self.tools.now)
        self.first_hooks: dict[Key, int] = {}
        self.last_hooks: dict[Key, int] = {}
        self.first_objects: Objects | None = None
        self.on_epoch: Callable[[], None] = lambda: None
        self._budget = Budget(share, self.tools.now)
        self._clock = PhaseClock(self.tools.now)
        self._thread = threading.get_ident()
        self._running: _Running | None = None
        self._ended: tuple[int, float] | None = None

    def prepare(self) -> None:
        """Takes the samples that every later one is compared with: before the first epoch, at no epoch's cost."""
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

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def is_by_hand(self) -> bool:
        """An epoch is under way that was begun by a call, not by a loader."""
        return self._running is not None and self._running.by_hand

    def epoch_begins(self, by_hand: bool = False) -> int:
        if self._running is not None:
            self.epoch_ends(complete=self._running.by_hand)
        now = self.tools.now()
        if self._ended is not None:
            index, ended = self._ended
            self.epochs[index] = replace(self.epochs[index], between=now - ended)
        self._budget.start()
        self._thread = threading.get_ident()
        self.compilations.attend()
        self._running = _Running(
            number=len(self.epochs) + 1,
            begun=self.tools.now(),
            processor=self.tools.processor(),
            reading=self.tools.system.read(),
            collector=self.collector.seconds,
            collections=tuple(self.collector.collections),
            by_hand=by_hand,
        )
        self._clock.start()
        return self._running.number

    def epoch_ends(self, complete: bool = True, number: int | None = None) -> None:
        running = self._running
        if running is None or number not in (None, running.number):
            return
        self._step_ends(running)
        self._clock.settle(OTHER)
        self._running = None
        if self._only_training and not running.backwards:
            self.compilations.take()
            return  # validation: part of the time between two epochs
        self._ended = (len(self.epochs), self.tools.now())
        self.epochs.append(self._record(running, complete))
        self.on_epoch()

    def waits(self) -> None:
        """The loop asks for a batch."""
        if (running := self._here()) is not None:
            self._step_ends(running)
            self._clock.settle(OTHER)
            self._clock.enter(DATA)
            running.step_begun = None

    def delivered(self, first_wait: float) -> None:
        """The loop has got a batch, ``first_wait`` seconds after the epoch's data was asked for if it is the first."""
        if (running := self._here()) is not None:
            self._clock.leave(DATA)
            running.delivers = True
            if running.first_wait is None:
                running.first_wait = first_wait
            self._step_begins(running)

    def exhausted(self) -> None:
        self._clock.leave(DATA)

    def loading_begins(self) -> None:
        if self._here() is not None:
            self._clock.enter(DATA)

    def loading_ends(self) -> None:
        if self._here() is not None:
            self._clock.leave(DATA)

    def forward_begins(self) -> None:
        if (running := self._here()) is not None:
            running.forwards += 1
            self._clock.enter(FORWARD)

    def forward_ends(self, output: Any) -> None:
        if (running := self._here()) is not None:
            self._clock.leave(FORWARD)
            self.graphs.saw_output(running.number, output)

    def backward_begins(self, outputs: Sequence[Any], retains: bool) -> bool:
        """Whether ``backward_ends`` is to be called."""
        running = self._here()
        if running is None:
            return False
        running.backwards += 1
        running.retained += retains
        self._clock.rebase(OTHER)
        if not running.delivers and running.step_begun is None:
            self._step_begins(running)
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
        if self._here() is not None:
            self._clock.leave(BACKWARD)

    def optimizer_begins(self) -> None:
        if self._here() is not None:
            self._clock.enter(OPTIMIZER)

    def optimizer_ends(self) -> None:
        if (running := self._here()) is not None:
            self._clock.leave(OPTIMIZER)
            if not running.delivers:  # a plain loop: the optimizer's steps are the steps
                self._step_ends(running)
                self._step_begins(running)

    def count_objects(self) -> None:
        """Completes the last epoch with what only a look at all objects tells: after it, at no epoch's cost."""
        if self.epochs and self.epochs[-1].live_tensors is None:
            objects = count_objects()
            self.epochs[-1] = replace(self.epochs[-1], live_tensors=objects.tensors, live_bytes=objects.bytes)

    def _here(self) -> _Running | None:
        return self._running if threading.get_ident() == self._thread else None

    def _is_ordinary_step(self, running: _Running) -> bool:
        """Not the epoch's first, which may warm up, unless epochs have one step."""
        return bool(running.steps) or (bool(self.epochs) and self.epochs[-1].steps == 1)

    def _step_begins(self, running: _Running) -> None:
        self._clock.rebase(AHEAD)
        if (
            running.operators is None
            and self._is_ordinary_step(running)
            and self.operators.is_possible
            and self._budget.affords("operators")
        ):
            with self._clock.phase(WATCHING):
                self.operators.start()
        running.step_begun = self.tools.now()

    def _step_ends(self, running: _Running) -> None:
        if running.step_begun is None:
            return
        begin = self.tools.now()
        running.steps.append(begin - running.step_begun)
        running.step_begun = None
        if self.operators.is_running:
            with self._clock.phase(WATCHING):
                running.operators = self.operators.stop()
            self._budget.spend("operators", self.tools.now() - begin)
        self.graphs.step_ended()

    def _record(self, running: _Running, complete: bool) -> Epoch:
        ended = self.tools.now()
        processor = self.tools.processor() - running.processor
        totals = self._clock.take()
        reading = self.tools.system.read()
        compilations, compiling, built = self.compilations.take()
        self.graphs.epoch_ended()
        self.graphs.forget(running.number)
        objects, denormals = self._samples_between(running.number)
        ahead = totals.get(AHEAD, 0.0)
        measured = running.forwards > 0
        steps = len(running.steps)
        counts = {epoch.number: epoch.steps for epoch in self.epochs} | {running.number: steps}
        return Epoch(
            number=running.number,
            steps=steps,
            backwards=running.backwards,
            complete=complete,
            seconds=ended - running.begun,
            between=0.0,
            data=totals.get(DATA, 0.0),
            first_wait=running.first_wait or 0.0,
            forward=totals.get(FORWARD, 0.0) if measured else ahead,
            backward=totals.get(BACKWARD, 0.0),
            optimizer=totals.get(OPTIMIZER, 0.0),
            other=totals.get(OTHER, 0.0) + (ahead if measured else 0.0),
            watching=totals.get(WATCHING, 0.0),
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
            resident_bytes=reading.resident_bytes,
            available_bytes=reading.available_bytes,
            disk_bytes=_grown(running.reading.disk_bytes, reading.disk_bytes),
            requested_bytes=_grown(running.reading.requested_bytes, reading.requested_bytes),
            major_faults=_grown(running.reading.major_faults, reading.major_faults),
            process_swap_bytes=reading.process_swap_bytes,
            system_swap_bytes=_grown(running.reading.system_swap_bytes, reading.system_swap_bytes),
            denormals=denormals,
            collector=self.collector.seconds - running.collector,
            collections=_three(self.collector.collections, running.collections),
            threads=reading.threads,
            compilations=compilations,
            compiling=compiling,
            built_operators=built,
        )

    def _samples_between(self, number: int) -> tuple[Objects | None, Denormals | None]:
        """What is looked at after an epoch has ended, as far as the budget goes; hooks always, they cost little."""
        objects: Objects | None = None
        denormals: Denormals | None = None
        if self.model is not None:
            if number == 1 or self._budget.affords("hooks"):
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
