"""``oneop.build``: the native library of some operators for one runtime."""

import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import oneop.targets
from oneop import registry
from oneop.errors import BuildError
from oneop.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from oneop.operator import Operator


class Target(Protocol):
    """What a folder of targets/ offers if libraries can be built for its runtime."""

    def build_library(self, specs: Sequence[KernelSpec], output_dir: Path) -> Path: ...


def build(ops_or_file: "Operator | Sequence[Operator] | str | Path", target: str, output_dir: str | Path) -> Path:
    """Builds the library that serves operators natively in a runtime, and returns its path.

    Args:
        ops_or_file: an operator, several, or the path of a file that defines some.
        target: the runtime, such as ``"onnxruntime"``.
        output_dir: the folder that the library is written to; it is made where it does not exist.

    Raises BuildError where the target is not known, an operator has no kernels, or the compiler fails.
    """
    module = _target(target)
    operators = _operators(ops_or_file)
    native = [operator for operator in operators if operator.has_kernels and not operator.definition.is_gradient]
    specs = [operator.kernel_spec() for operator in registry.compiled_together(native)]
    if not specs:
        names = ", ".join(operator.definition.name for operator in operators)
        raise BuildError(
            f"{target}: no kernel to build in {names}. Give the operator kernels=[...], or export with the default "
            '`fallback="function"`: then the runtime needs no library.'
        )
    return module.build_library(specs, Path(output_dir))


def buildable() -> list[str]:
    """The targets that a library can be built for."""
    folders = [item.name for item in pkgutil.iter_modules(oneop.targets.__path__) if item.ispkg]
    return [name for name in folders if hasattr(importlib.import_module(f"oneop.targets.{name}"), "build_library")]


def _target(name: str) -> Target:
    known = buildable()
    if name not in known:
        raise BuildError(
            f"{name!r} is not a target that oneop builds for. Choose one of {', '.join(map(repr, known))}."
        )
    module: Target = importlib.import_module(f"oneop.targets.{name}")
    return module


def _operators(given: "Operator | Sequence[Operator] | str | Path") -> "list[Operator]":
    if isinstance(given, str | Path):
        return registry.load_file(given)
    listed = [*given] if isinstance(given, Sequence) else [given]
    for item in listed:
        if not hasattr(item, "kernel_spec"):
            raise BuildError(
                f"oneop.build takes operators, or the path of a file that defines some, not {type(item).__name__}. Pass"
                " what @oneop.op made of your function."
            )
    return listed
