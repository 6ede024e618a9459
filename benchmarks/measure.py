"""How everything here is measured: both sides in turns within one run, medians, and one row of the table each."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """Seconds for one call of ours and of the peer (None: there is none), and their ratio (or ours, in seconds)."""

    ours: float
    peer: float | None
    ratio: float


@dataclass(frozen=True)
class Row:
    """One line of the table: ``measured.ratio`` has to be at most ``bound``."""

    what: str
    against: str
    measured: Measured
    bound: float

    @property
    def holds(self) -> bool:
        return self.measured.ratio <= self.bound


def compare(
    ours: Callable[[int], None], peer: Callable[[int], None], *, count: int = 500, rounds: int = 60
) -> Measured:
    """Runs ``count`` calls of each in turns; medians over the rounds.

    Each argument takes the number of calls to make. The order alternates, so that neither side always comes second.
    """
    ours(count)
    peer(count)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            begin = time.perf_counter()
            (ours, peer)[side](count)
            times[side].append((time.perf_counter() - begin) / count)
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    return Measured(statistics.median(times[0]), statistics.median(times[1]), ratio)
