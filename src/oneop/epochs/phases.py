"""Time by phase, each second counted once: a phase inside another suspends it (a closure inside optimizer.step)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

DATA, FORWARD, BACKWARD, OPTIMIZER, WATCHING = "data", "forward", "backward", "optimizer", "watching"
AHEAD, OTHER = "ahead", "other"
"""Outside all phases: between a batch and the backward of its step, or elsewhere."""


class PhaseClock:
    """Adds up seconds by phase, from ``start`` to ``take``: in one step of a loop."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._totals: dict[str, float] = {}
        self._stack: list[str] = []
        self._base = OTHER
        self._since = now()

    def start(self, base: str = OTHER) -> None:
        """``base`` is what counts outside all phases."""
        self._totals = {}
        self._stack.clear()
        self._base = base
        self._since = self._now()

    def enter(self, phase: str) -> None:
        self._charge()
        self._stack.append(phase)

    def leave(self, phase: str) -> None:
        """Ends the innermost ``phase``, and with it those inside that an exception left open."""
        self._charge()
        if phase in self._stack:
            while self._stack.pop() != phase:
                pass

    def rebase(self, base: str) -> None:
        self._charge()
        self._base = base

    def take(self) -> dict[str, float]:
        self._charge()
        return dict(self._totals)

    @contextmanager
    def phase(self, phase: str) -> Iterator[None]:
        self.enter(phase)
        try:
            yield
        finally:
            self.leave(phase)

    def _charge(self) -> None:
        now = self._now()
        current = self._stack[-1] if self._stack else self._base
        self._totals[current] = self._totals.get(current, 0.0) + now - self._since
        self._since = now
