"""What this machine's memory and cores can do, measured a moment before the operators."""

import time
from collections.abc import Callable

import torch

from oneop.bench.memory import free_memory
from oneop.bench.results import Machine
from oneop.definition.dtypes import DType

ARRAY = 64 * 2**20
"""Bytes of each of the triad's three arrays: several times the last cache, in machines that people have."""
PRODUCT = 1024
SECONDS = 0.4
"""The time for each of the two measurements."""


def measure(threads: int, dtype: DType) -> Machine:
    """Both with so many threads. The best of several runs, as STREAM does it: the rest is other people's work."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return Machine(threads, dtype.name, _bandwidth(), _arithmetic(dtype))
    finally:
        torch.set_num_threads(before)


def _bandwidth() -> float:
    """STREAM's triad, a = b + s * c, counted as its author does: two arrays read and one written."""
    free = free_memory()
    count = ARRAY if free is None else max(2**20, min(ARRAY, free // 8))
    a, b, c = (torch.ones(count // 4) for _ in range(3))
    return 3 * a.nbytes / _best(lambda: torch.add(b, c, alpha=3.0, out=a))


def _arithmetic(dtype: DType) -> float | None:
    """A product of two square matrices, n^3 multiplications and as many additions."""
    if not dtype.is_floating:
        return None
    size = PRODUCT if dtype.name in ("float32", "float64") else PRODUCT // 2
    a, b = (torch.randn(size, size).to(getattr(torch, dtype.name)) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / _best(lambda: torch.mm(a, b, out=out))


def _best(run: Callable[[], object]) -> float:
    """Seconds of the fastest call: at least four, and as many as fit into the time."""
    run()
    fastest, calls = float("inf"), 0
    end = time.perf_counter() + SECONDS
    while calls < 4 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        fastest = min(fastest, time.perf_counter() - begin)
        calls += 1
    return fastest
