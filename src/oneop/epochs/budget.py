"""What the samples of a watch may cost: a share of the time watched. A sample that it cannot pay for is left out."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_GUESS = {"operators": 0.010, "objects": 0.060, "graph": 0.002, "denormals": 0.002, "hooks": 0.001}
"""Seconds that a sample is thought to cost before one was taken."""


class Budget:
    """Admits a sample if what was spent and what it will cost stay within ``share`` of the time since ``start``.

    An infinite share admits all.
    """

    def __init__(self, share: float, now: Callable[[], float]) -> None:
        self._share = share
        self._now = now
        self._costs = dict(FIRST_GUESS)
        self._started: float | None = None
        self._spent = 0.0

    def start(self) -> None:
        """The first epoch begins; what was spent before cost no epoch anything."""
        if self._started is None:
            self._started = self._now()
            self._spent = 0.0

    def affords(self, sample: str) -> bool:
        if self._started is None or math.isinf(self._share):
            return self._started is not None
        return self._spent + self._costs[sample] <= self._share * (self._now() - self._started)

    def spend(self, sample: str, seconds: float) -> None:
        self._spent += seconds
        self._costs[sample] = seconds

    @contextmanager
    def spending(self, sample: str) -> Iterator[None]:
        begin = self._now()
        try:
            yield
        finally:
            self.spend(sample, self._now() - begin)
