"""What runs a model file on this machine: each runtime's ways to open an ONNX file and to call it."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import oneop.targets

if TYPE_CHECKING:
    from oneop.operator import Operator

Fallback: TypeAlias = Literal["function", "inline", "none"]

Call: TypeAlias = Callable[[Mapping[str, Any]], list[Any]]
"""Arrays of numpy by input name; gives the outputs in the order of the file. bfloat16 has ml_dtypes's type."""


@dataclass(frozen=True)
class ModelRunner:
    """One way in which a runtime runs a model file: with the function in the file, or with a native library.

    Attributes:
        target: the name of the folder in targets/, as ``--target`` takes it.
        title: how a table's head names it, such as "ONNX Runtime, native".
        is_native: whether it runs the kernels; it then needs operators that have some.
        fallback: how the file has to be exported for it.
        missing: says why it cannot run on this machine and what to do; None where it can.
        open: a session. ``threads`` is the number of threads of one call; None leaves it to the runtime. Raises
            OneopError where the file or the library does not go.
        narrowed: the dtypes that the runtime computes in a coarser one, and that one: {"float64": "float32"}.
        prepare: builds and caches what ``open`` needs of the operators; raises BuildError. Whoever measures time calls
            it first.
        integers: the dtype that its own operators compute int64 in, so that only kernels can be asked for more.
        loses_nan: whether its own operators take NaN for a number, so that only kernels can be asked for it.
    """

    target: str
    title: str
    is_native: bool
    fallback: Fallback
    missing: Callable[[], str | None]
    open: "Callable[[Path, Sequence[Operator], int | None], Call]"
    narrowed: Mapping[str, str] = field(default_factory=dict)
    integers: str = "int64"
    loses_nan: bool = False
    prepare: "Callable[[Sequence[Operator]], object] | None" = None


def target_names() -> list[str]:
    return [item.name for item in pkgutil.iter_modules(oneop.targets.__path__) if item.ispkg]


def model_runners() -> tuple[ModelRunner, ...]:
    """Those of every target, in the order of the targets' names."""
    found: list[ModelRunner] = []
    for item in pkgutil.iter_modules(oneop.targets.__path__):
        inside = pkgutil.iter_modules([f"{folder}/{item.name}" for folder in oneop.targets.__path__])
        # importlib.util.find_spec would import the target itself, which may need what is not installed.
        if item.ispkg and any(module.name == "running" for module in inside):
            found.extend(importlib.import_module(f"oneop.targets.{item.name}.running").MODEL_RUNNERS)
    return tuple(found)
