"""What watching costs: an epoch of one second, watched, against the same epoch as it is."""

import statistics
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import oneop.epochs
from benchmarks.measure import Measured, Row

EPOCH = 1.0
"""Seconds of the epoch that the figures are for."""

SAMPLES = 0.004
"""The share of the time that samples and closely watched steps may take: ``watch``'s default, which it keeps to."""


def rows() -> list[Row]:
    return [
        Row("an epoch of 1 s in 200 steps, watched", "not watched", epoch_of(200), 1.02),
        Row("an epoch of 1 s in 1000 steps, watched", "not watched", epoch_of(1000), 1.02),
        Row("the same loop of large steps, watched", "not watched", direct(), 1.02),
    ]


def epoch_of(steps: int, rounds: int = 20, extra: int = 0) -> Measured:
    """Processor seconds of an epoch of one second in so many steps, with and without a watch, and their ratio.

    Watching costs the same whatever a step computes. So it is measured on small steps, in epochs of both kinds that
    take turns: the mean of the quickest third of all steps of either kind, and the ends of the quickest epochs. What
    else the machine does is no cost of the watch. To that comes the whole share that samples may take. ``extra``
    objects are made in each watched step: for showing that the measurement can fail.
    """
    step, ends = _quickest(Training(width=16, batch=8, steps=100, extra=extra), rounds)
    ours = EPOCH + steps * (step[True] - step[False]) + ends[True] - ends[False] + SAMPLES * EPOCH
    return Measured(ours, EPOCH, ours / EPOCH)


def direct(rounds: int = 20) -> Measured:
    """A step of some milliseconds with and without a watch, nothing worked out. Needs a quiet machine."""
    step, _ = _quickest(Training(width=384, batch=192, steps=60), rounds)
    return Measured(step[True], step[False], step[True] / step[False])


def _quickest(training: "Training", rounds: int) -> tuple[dict[bool, float], dict[bool, float]]:
    training.epoch()
    times: dict[bool, list[float]] = {True: [], False: []}
    ends: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds):
        for watched in (number % 2 == 0, number % 2 == 1):
            each, rest = training.watched() if watched else training.epoch()
            times[watched] += each
            ends[watched].append(rest)
    step = {kind: statistics.mean(sorted(found)[: len(found) // 3]) for kind, found in times.items()}
    return step, {kind: min(found) for kind, found in ends.items()}


class Training:
    """An ordinary training loop that times its steps, each from one batch to the next."""

    def __init__(self, width: int, batch: int, steps: int, extra: int = 0) -> None:
        torch.manual_seed(0)
        self._extra = extra
        self._model = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        self._loader = DataLoader(_Same(width, batch, steps), batch_size=None)

    def watched(self) -> tuple[list[float], float]:
        """With a watch whose samples are left out: they are counted by their share."""
        with oneop.epochs.watch(self._loader, self._model, self._optimizer, show=False, overhead=0.0):
            return self.epoch(self._extra)

    def epoch(self, extra: int = 0) -> tuple[list[float], float]:
        """Processor seconds of each step but the first, and of what is outside them."""
        times = []
        begin = last = time.thread_time()
        for x, y in self._loader:
            self._optimizer.zero_grad()
            loss = (self._model(x) - y).square().mean()
            loss.backward()
            self._optimizer.step()
            for _ in range(extra):
                object()
            now = time.thread_time()
            times.append(now - last)
            last = now
        return times[1:], time.thread_time() - begin - sum(times[1:]) - times[1]


class _Same(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Whole batches that are there already: loading costs next to nothing."""

    def __init__(self, width: int, batch: int, steps: int) -> None:
        self._steps = steps
        self._batch = (torch.randn(batch, width), torch.randn(batch, 1))

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._batch
