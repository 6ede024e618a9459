"""How numbers are written in tables and sentences."""

from collections.abc import Iterable


def seconds(value: float) -> str:
    """Three digits with a unit: 1.84 ms, 12.0 s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.0f} ns" if value else "0 s"


def size(value: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"


def signed_size(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{size(abs(value))}"


def count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in numbers)
