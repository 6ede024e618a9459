"""Watching costs less than 2 % of an epoch of 1 s: benchmarks/epochs measures it, and here it is held to."""

import inspect
import sys
from pathlib import Path

import pytest
import torch

import oneop.epochs
from support.trainings import Net, loader, step

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.epochs import SAMPLES, epoch_of

BOUND = 1.02


@pytest.mark.parametrize("steps", [200, 1000])
def test_an_epoch_of_one_second_takes_less_than_two_per_cent_longer(steps: int) -> None:
    # A busy machine makes a single measurement too large, never too small: it is asked whether the bound can be kept.
    ratios = []
    for _ in range(5):
        ratios.append(epoch_of(steps, rounds=8).ratio)
        if ratios[-1] < BOUND:
            return
    pytest.fail(f"watched epochs take {ratios} times those that are not watched; at most {BOUND}")


def test_that_measurement_can_fail() -> None:
    assert epoch_of(200, rounds=4, extra=3000).ratio > BOUND


def test_the_benchmark_counts_what_samples_may_take() -> None:
    default = inspect.signature(oneop.epochs.watch).parameters["overhead"].default
    assert default == SAMPLES


def test_quick_steps_are_watched_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = Net(), loader(steps=200)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    monkeypatch.setattr("oneop.epochs.recorder.Recorder._cost_of_watching", lambda self: 1e-3)
    with oneop.epochs.watch(source, model, optimizer, overhead=0.1, show=False) as w:
        for _ in range(3):
            for x, y in source:
                step(model, optimizer, x, y)
    for epoch in w.epochs:
        # 40 % of a tenth of the time at 1 ms each: a step of 0.5 ms is watched one time in 50.
        assert 1 <= epoch.watched_steps <= 2 + 0.04 * epoch.seconds / 1e-3 * 3
        assert epoch.watched_steps < epoch.steps
        assert epoch.forward + epoch.backward + epoch.optimizer < epoch.seconds
        assert min(epoch.forward, epoch.backward, epoch.optimizer) > 0
