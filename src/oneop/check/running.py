"""The engine of ``oneop check``: runs the properties of one operator in every column, within a time."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from oneop.check.results import Report, Result

if TYPE_CHECKING:
    from oneop.operator import Operator

SEED = 0


def check(
    operator: "Operator",
    *,
    quick: bool = False,
    seed: int = SEED,
    seconds: float | None = None,
    targets: Collection[str] | None = None,
    properties: Collection[str] | None = None,
    columns: Collection[str] | None = None,
    sanitizer: str | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
    on_result: Callable[[Result], None] | None = None,
) -> Report:
    """What was found about one operator.

    Args:
        quick: about 10 seconds instead of 60.
        seed: decides which cases are drawn: the same seed, the same cases.
        seconds: the time, where it is to be another; it may end the drawing of cases early, never a whole property.
        targets: the columns' targets ("pytorch", "onnxruntime", ...); None stands for those that are installed. One
            that is named here and missing fails.
        properties, columns: the rows and columns that are looked at, by title; None stands for all.
        sanitizer: "address" or "thread": also runs the kernels under it, in a program of their own.
        on_progress: called with what is being looked at, the cells done, and all cells.
        on_result: called with each cell once it is known.

    The kernels run in a program of their own first (``oneop.check.native.findings(operator, cases, sanitizer)``, a list
    of results); where one crashes there, it is not called in this process.
    """
    raise NotImplementedError
