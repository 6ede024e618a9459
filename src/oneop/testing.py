"""What tests of operators call: ``oneop.testing.check(op)`` runs every property of ``oneop check``."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oneop.check.results import Report
    from oneop.operator import Operator

__all__ = ["CheckFailedError", "assert_property", "check"]


class CheckFailedError(AssertionError):
    """A property does not hold. The message has the smallest call that shows it; ``report`` has everything."""

    def __init__(self, message: str, report: "Report | None" = None) -> None:
        super().__init__(message)
        self.report = report


def check(
    op: "Operator",
    *,
    quick: bool = True,
    seed: int = 0,
    seconds: float | None = None,
    targets: Collection[str] | None = None,
    properties: Collection[str] | None = None,
    columns: Collection[str] | None = None,
) -> "Report":
    """Runs what ``oneop check`` runs, and raises CheckFailedError, an AssertionError, where something does not hold.

    Args:
        op: the operator; its constraints and examples (``@op.example``) count.
        quick: about 10 seconds; otherwise 60. ``seconds`` sets another time.
        seed: decides which calls are made up: the same seed, the same calls.
        targets: "pytorch", "onnxruntime", ...: those that are installed if not given. One that is named must be there.
        properties, columns: rows and columns of the table, by title; all if not given.

    Returns the report: a result for each row and column, with its reason where it was skipped.

    >>> import oneop, oneop.testing, torch
    >>> from jaxtyping import Float
    >>> from torch import Tensor
    >>> @oneop.op("readme::halve")
    ... def halve(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    ...     return x / 2
    >>> oneop.testing.check(halve, properties=["values", "first gradient, reference"], targets=["pytorch"]).ok
    True
    """
    __tracebackhide__ = True
    from oneop.check.console import failures_text
    from oneop.check.running import check as run

    report = run(op, quick=quick, seed=seed, seconds=seconds, targets=targets, properties=properties, columns=columns)
    if not report.ok:
        raise CheckFailedError(failures_text(report), report)
    return report


def assert_property(
    op: "Operator",
    property: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any] | None = None,
    *,
    column: str = "PyTorch eager",
    seed: int = 1,
) -> None:
    """Looks at one property of one call: what the snippets of ``oneop check`` end with.

    Args:
        property, column: a row and a column of the table, by title.
        inputs: one value an input: a tensor, None, or a list of tensors.
        attributes: those that are not the default.
        seed: decides the incoming gradients and directions.

    Raises CheckFailedError where the property does not hold.
    """
    from oneop.check.console import finding_text
    from oneop.check.single import look

    finding = look(op, property, inputs, attributes or {}, column=column, seed=seed)
    if finding is not None:
        raise CheckFailedError(f"{op.definition.name}, {property}, {column}: {finding_text(finding)}")


def split(op: "Operator", returned: Any) -> tuple[list[Any], dict[str, Any]]:
    """The inputs and the attributes of what an example returned."""
    from oneop.check.examples import inputs_and_attributes

    return inputs_and_attributes(op, returned)
