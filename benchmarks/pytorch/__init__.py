"""PyTorch: calls and gradients against hand-written operators, and what compiling costs."""

from benchmarks.measure import Row


def rows() -> list[Row]:
    """The rows of the table, the quick ones first."""
    from benchmarks.pytorch import building, calls, derived

    return [*calls.rows(), *derived.rows(), *building.rows()]
