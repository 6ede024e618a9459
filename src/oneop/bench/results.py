"""What a benchmark found, as plain records."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["measured", "wrong", "failed"]
Pass = Literal["forward", "forward and backward"]

FORWARD: Pass = "forward"
BACKWARD: Pass = "forward and backward"


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median, and the first and third quartile around it."""

    median: float
    low: float
    high: float
    runs: int

    @property
    def spread(self) -> float:
        """The interquartile range."""
        return self.high - self.low


@dataclass(frozen=True)
class Work:
    """What one call has to do.

    Attributes:
        bytes: those of every tensor that goes in or comes out, once.
        flops: the floating operations that could be counted; None where none could.
        uncounted: the operations whose number is not known, such as ``aten.exp``; where there are some, ``flops`` is a
            lower bound.
    """

    bytes: int
    flops: int | None
    uncounted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """What this machine does with so many threads, measured before the operators.

    ``bandwidth`` is in bytes a second, of a STREAM triad on arrays larger than the caches; ``arithmetic`` in floating
    operations a second, of a matrix product in ``dtype``. None where it was not measured: a dtype without products.
    """

    threads: int
    dtype: str
    bandwidth: float
    arithmetic: float | None


@dataclass(frozen=True)
class Missing:
    """A column that cannot be had here, and why. ``by_definition``: nowhere, for this operator has none."""

    title: str
    reason: str
    by_definition: bool = False


@dataclass(frozen=True)
class Row:
    """One column at one size: its timing, or why there is none."""

    column: str
    title: str
    size: str
    threads: int
    kind: Pass
    status: Status
    timing: Timing | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Measured:
    """The rows of one operator, and what its calls were.

    ``work`` is by size and pass, ``missing`` by the name of a column, ``absent`` names optional inputs.
    """

    operator: str
    dtypes: Mapping[str, str]
    attributes: Mapping[str, Any]
    absent: Sequence[str]
    sizes: Sequence[str]
    rows: Sequence[Row]
    work: Mapping[tuple[str, Pass], Work]
    missing: Mapping[str, Missing] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def row(self, column: str, size: str, threads: int, kind: Pass) -> Row | None:
        wanted = (column, size, threads, kind)
        return next((row for row in self.rows if (row.column, row.size, row.threads, row.kind) == wanted), None)


@dataclass(frozen=True)
class Report:
    """A whole run. ``complaints`` are what makes it fail, each in words; empty where all is well."""

    versions: Mapping[str, str]
    machines: Sequence[Machine]
    operators: Sequence[Measured]
    complaints: Sequence[str] = field(default=())

    def machine(self, threads: int, dtype: str) -> Machine:
        return next(item for item in self.machines if (item.threads, item.dtype) == (threads, dtype))

    def as_json(self) -> dict[str, Any]:
        """Plain values: seconds, bytes, floating operations, and those a second."""
        return {
            "versions": dict(self.versions),
            "machines": [asdict(item) for item in self.machines],
            "operators": [self._operator(item) for item in self.operators],
            "complaints": list(self.complaints),
        }

    def _operator(self, measured: Measured) -> dict[str, Any]:
        return {
            "operator": measured.operator,
            "dtypes": dict(measured.dtypes),
            "attributes": dict(measured.attributes),
            "absent": list(measured.absent),
            "missing": {name: item.reason for name, item in measured.missing.items()},
            "notes": list(measured.notes),
            "rows": [self._row(measured, row) for row in measured.rows],
        }

    def _row(self, measured: Measured, row: Row) -> dict[str, Any]:
        described = asdict(row)
        timing = described.pop("timing")
        described["pass"] = described.pop("kind")
        described["seconds"] = timing
        work = measured.work.get((row.size, row.kind))
        if row.timing is not None and work is not None:
            described["bytes_per_second"] = work.bytes / row.timing.median
            described["flops_per_second"] = None if work.flops is None else work.flops / row.timing.median
            described["flops_is_lower_bound"] = bool(work.uncounted)
            described["uncounted"] = list(work.uncounted)
        return described
