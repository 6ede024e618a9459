"""How one call is timed: torch.utils.benchmark, medians and quartiles."""

from collections.abc import Callable

import numpy as np
from torch.utils.benchmark import Timer

from oneop.bench.results import Timing

LEAST = 5
"""Quartiles of fewer runs than these mean nothing."""


def time_call(run: Callable[[], object], threads: int, seconds: float) -> Timing:
    """Runs for about so many seconds, and at least LEAST times. A run is a block of calls where one call is short."""
    timer = Timer("run()", globals={"run": run}, num_threads=threads)
    measured = timer.blocked_autorange(min_run_time=seconds)
    times = list(measured.times)
    while len(times) < LEAST:
        times.extend(timer.timeit(measured.number_per_run).times)
    low, median, high = (float(value) for value in np.percentile(times, (25, 50, 75)))
    return Timing(median, low, high, len(times))
