"""Inference sessions with oneop's libraries registered, after a look at whether model and libraries belong together."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneop import registry
from oneop.errors import BuildError, ExportError
from oneop.kernels.devices import devices_here, specs_for
from oneop.kernels.spec import Device, KernelSpec
from oneop.targets.onnxruntime.library import cached_library
from oneop.targets.onnxruntime.models import Model, ModelProto, read_model
from oneop.targets.onnxruntime.native import fingerprints_of

if TYPE_CHECKING:
    import onnxruntime

    from oneop.operator import Operator

_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll")


def session(
    model: "str | PathLike[str] | bytes | ModelProto",
    ops: "Operator | str | PathLike[str] | Sequence[Operator | str | PathLike[str]] | None" = None,
    **session_kwargs: Any,
) -> "onnxruntime.InferenceSession":
    """An ``InferenceSession`` in which the model's operators run their kernels.

    Args:
        model: the path of an ONNX file, its bytes, or an ``onnx.ModelProto``.
        ops: what to register: operators, paths of definition files, paths of libraries that ``oneop.build`` wrote, or
            several of these. None stands for every operator in the model that this process defines and that has
            kernels. Libraries are built on demand, into the cache.
        session_kwargs: for ``InferenceSession``. Libraries are registered on ``sess_options`` where that is given.

    Raises ExportError where the model was exported from another definition of an operator than the one registered;
    BuildError where a library cannot be built or loaded.
    """
    import onnxruntime

    described = read_model(model)
    devices = _devices(session_kwargs)
    operators, libraries = _chosen(described, ops, devices)
    for operator in operators:
        _require_same(described, operator.definition.name, operator.definition.fingerprint, operator.defined_in)
    for library in libraries:
        for name, fingerprint in fingerprints_of(library).items():
            _require_same(described, name, fingerprint, str(library))
    options = session_kwargs.pop("sess_options", None) or onnxruntime.SessionOptions()
    for library in [*_built(operators, devices), *libraries]:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(described.source, options, **session_kwargs)


def prepare(operators: "Sequence[Operator]") -> list[Path]:
    """Builds the libraries that sessions on the CPU register for these operators. Raises BuildError."""
    return _built(operators, ("cpu",))


def _devices(session_kwargs: Mapping[str, Any]) -> tuple[Device, ...]:
    """Where the session runs: its `providers` are names, or pairs with options. The CPU always is one of them."""
    named = [item if isinstance(item, str) else item[0] for item in session_kwargs.get("providers") or ()]
    return ("cpu", "cuda") if "CUDAExecutionProvider" in named else ("cpu",)


def _chosen(model: Model, ops: Any, devices: Sequence[Device]) -> "tuple[list[Operator], list[Path]]":
    """The operators to register, and the libraries that are there already."""
    if ops is None:
        known = _native(registry.operators().values(), devices)
        return [operator for operator in known if _identifier(operator) in model.nodes], []
    operators: list[Operator] = []
    libraries: list[Path] = []
    for item in [ops] if isinstance(ops, str | PathLike) or not isinstance(ops, Sequence) else ops:
        if not isinstance(item, str | PathLike):
            operators.append(_with_kernels(registry.require_operator(item, "oneop.onnxruntime.session"), devices))
        elif Path(item).suffix in _LIBRARY_SUFFIXES:
            libraries.append(Path(item).resolve())
        else:
            operators.extend(_native(registry.load_file(Path(item)), devices))
    return operators, libraries


def _native(operators: "Iterable[Operator]", devices: Sequence[Device]) -> "list[Operator]":
    found = [operator for operator in operators if not operator.definition.is_gradient]
    return [operator for operator in found if not set(devices).isdisjoint(operator.devices)]


def _identifier(operator: "Operator") -> tuple[str, str]:
    return operator.definition.namespace, operator.definition.onnx_name


def _with_kernels(operator: "Operator", devices: Sequence[Device]) -> "Operator":
    if not set(devices).isdisjoint(operator.devices):
        return operator
    if operator.has_kernels:
        raise BuildError(
            f"{operator.definition.name} has CUDA kernels only, and this session runs on the CPU. Pass "
            'providers=["CUDAExecutionProvider", "CPUExecutionProvider"], or leave the operator out of `ops` (the '
            "model runs the function it carries)."
        )
    raise BuildError(
        f"{operator.definition.name} has no kernels, so there is nothing to register for it. Leave it out of `ops` "
        "(the model runs the function it carries), or give it kernels=[...]."
    )


def _built(operators: "Iterable[Operator]", devices: Sequence[Device]) -> list[Path]:
    """One library for each definition file that an operator comes from."""
    files: dict[str, list[Operator]] = {}
    for operator in operators:
        files.setdefault(operator.defined_in, []).append(operator)
    specs = [_specs(registry.compiled_together(group), devices) for group in files.values()]
    return [cached_library(found) for found in specs if found]


def _specs(operators: "Sequence[Operator]", devices: Sequence[Device]) -> list[KernelSpec]:
    """Their kernels for the session's devices, as far as this machine can build them."""
    here = devices_here(operators) if "cuda" in devices else devices
    return specs_for(operators, [device for device in devices if device in here])


def _require_same(model: Model, name: str, fingerprint: str, origin: str) -> None:
    exported = model.fingerprints.get(name)
    if exported is not None and exported != fingerprint:
        raise ExportError(
            f"{name}: the model was exported from another definition (fingerprint {exported}) than that of {origin} "
            f"(fingerprint {fingerprint}). Export the model again, or use the library of the definition that it was "
            "exported from."
        )
