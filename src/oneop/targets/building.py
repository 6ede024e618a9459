"""``oneop.build``: the native library of some operators for one runtime."""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import oneop.targets
from oneop import registry
from oneop.errors import BuildError
from oneop.kernels.compilers import NO_NVCC, has_cuda_compiler
from oneop.kernels.devices import devices_here, specs_for
from oneop.kernels.spec import DEVICES, Device, KernelSpec

if TYPE_CHECKING:
    from oneop.operator import Operator


class Target(Protocol):
    """What a folder of targets/ offers if libraries can be built for its runtime.

    ``DEVICES``, where it is there, names those whose kernels the runtime takes; it is the CPU alone otherwise.
    ``OPTIONS`` names the further arguments that ``build_library`` has.
    """

    def build_library(self, specs: Sequence[KernelSpec], output_dir: Path, **options: Any) -> Path: ...


def build(
    ops_or_file: "Operator | Sequence[Operator] | str | Path",
    target: str,
    output_dir: str | Path,
    *,
    device: Device | None = None,
    **options: Any,
) -> Path:
    """Builds the library that serves operators natively in a runtime, and returns its path.

    Args:
        ops_or_file: an operator, several, or the path of a file that defines some.
        target: the runtime, such as ``"onnxruntime"``.
        output_dir: the folder that the library is written to; it is made where it does not exist.
        device: ``"cpu"`` leaves CUDA kernels out; ``"cuda"`` insists on them, beside those for the CPU. If not given,
            they are in the library where there is an nvcc, and a line says so where there is none.
        options: the target's own; ``"tensorrt"`` takes ``bounds`` and ``workspace`` (docs/tensorrt.md).

    Raises BuildError where the target is not known, an operator has no kernels, or a compiler fails or is missing.
    """
    module = _target(target)
    _require_options(target, module, options)
    operators = _operators(ops_or_file)
    native = [operator for operator in operators if operator.has_kernels and not operator.definition.is_gradient]
    together = registry.compiled_together(native)
    devices = _devices(target, module, together, device)
    specs = specs_for(together, devices)
    if "cpu" not in devices:  # such a target says itself whose kernels are missing
        specs = [operator.kernel_spec(found) for operator in together for found in devices]
    if not specs:
        names = ", ".join(operator.definition.name for operator in operators)
        raise BuildError(
            f"{target}: no kernel to build in {names}. Give the operator kernels=[...], or export with the default "
            '`fallback="function"`: then the runtime needs no library.'
        )
    return module.build_library(specs, Path(output_dir), **options)


def _require_options(target: str, module: Target, given: Mapping[str, Any]) -> None:
    known: tuple[str, ...] = getattr(module, "OPTIONS", ())
    for name in given:
        if name not in known:
            takes = f"It takes {', '.join(known)}." if known else "It takes none."
            raise BuildError(f"{target}: there is no option `{name}`. {takes}")


def _devices(target: str, module: Target, operators: "Sequence[Operator]", asked: Device | None) -> tuple[Device, ...]:
    served: tuple[Device, ...] = getattr(module, "DEVICES", ("cpu",))
    if asked is None:
        return served if len(served) == 1 else tuple(item for item in devices_here(operators) if item in served)
    if asked not in DEVICES:
        raise BuildError(f"{target}: device={asked!r} is not known. Write one of {', '.join(map(repr, DEVICES))}.")
    if asked not in served:
        raise BuildError(
            f"{target}: this runtime takes kernels for {', '.join(map(repr, served))}, and device={asked!r} asks for "
            "others. Leave device= out."
        )
    if asked == "cpu":
        return ("cpu",)
    without = [
        operator.definition.name
        for operator in operators
        if "cuda" not in operator.devices and not operator.definition.is_gradient
    ]
    if without:
        raise BuildError(
            f'{target}: device="cuda" asks for CUDA kernels, and {", ".join(without)} has none. Add a .cu file to its '
            "kernels=[...], or leave device= out."
        )
    if not has_cuda_compiler():
        raise BuildError(f'{target}: device="cuda" asks for CUDA kernels, and {NO_NVCC}')
    return served


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
    return [registry.require_operator(item, "oneop.build") for item in listed]
