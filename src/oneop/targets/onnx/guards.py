"""What torch.export takes for granted of the sizes of a trace, beyond what a ``Dim`` can say.

A guard that an author's branch made changes what is computed. Others come from torch itself, which asks how its example
tensors lie in memory, or whether a window fits into a row: what is computed does not depend on the answer.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

HIGHEST = 64
"""A lower bound beyond this is not taken: too many sizes would have to be tried."""

_TORCH = Path(torch.__file__).parent
_OF_LAYOUT = {
    "are_strides_like_channels_last",
    "check_contiguous_sizes_strides",
    "ge",  # inside should_swap
    "is_channels_last_contiguous_2d",
    "is_channels_last_contiguous_3d",
    "is_contiguous",
    "is_non_overlapping_and_dense",
    "should_swap",
}
"""Functions of torch/_prims_common/__init__.py whose answers decide about strides only."""
_TELLING = {"data_ptr", "dim_order", "is_contiguous", "is_set_to", "storage_offset", "stride", "untyped_storage"}


def least_size(program: torch.export.ExportedProgram) -> int | None:
    """The sizes below which torch itself would refuse a call: those have to be tried. None where other guards decide
    what is computed, or where it cannot be told.
    """
    bounds = [0]
    for environment in _environments(program):
        for guard in getattr(environment, "guards", [None]):
            place = getattr(getattr(guard, "sloc", None), "framework_loc", None)
            if place is None or not Path(place.filename).is_relative_to(_TORCH):
                return None
            if Path(place.filename) == _TORCH / "_prims_common" / "__init__.py" and place.name in _OF_LAYOUT:
                continue
            bound = _lower_bound(guard.expr)
            if bound is None or bound > HIGHEST:
                return None
            bounds.append(bound)
    return max(bounds)


def layout_matters(program: torch.export.ExportedProgram, reference: Callable[[], object]) -> bool:
    """Whether what is computed may depend on how tensors lie in memory after all: where the reference asks for it, or
    writes into tensors that may be views.
    """
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    if any(isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable for target in calls):
        return True
    with _Questions() as questions:
        reference()
    return bool(questions.asked)


class _Questions(TorchFunctionMode):
    """Notes the methods of tensors that tell their layout."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        if name in _TELLING:
            self.asked.add(name)
        return function(*args, **(kwargs or {}))


def _environments(program: torch.export.ExportedProgram) -> Iterator[Any]:
    """Those in which torch kept account of the sizes, each once."""
    found: dict[int, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor):
            for size in node.meta["val"].shape:
                if isinstance(size, torch.SymInt):
                    found.setdefault(id(size.node.shape_env), size.node.shape_env)
    yield from found.values()


def _lower_bound(expression: Any) -> int | None:
    """k of ``size >= k``, an expression of sympy; None where a guard says anything else."""
    kind = type(expression).__name__
    if kind not in ("GreaterThan", "StrictGreaterThan", "LessThan", "StrictLessThan"):
        return None
    size, bound = expression.args if "Greater" in kind else reversed(expression.args)
    return int(bound) + kind.startswith("Strict") if size.is_symbol and bound.is_Integer else None
