"""Inference sessions with oneop's libraries registered, after a look at whether model and libraries belong together."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneop import registry
from oneop.errors import BuildError, ExportError
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
    operators, libraries = _chosen(described, ops)
    for operator in operators:
        _require_same(described, operator.definition.name, operator.definition.fingerprint, operator.defined_in)
    for library in libraries:
        for name, fingerprint in fingerprints_of(library).items():
            _require_same(described, name, fingerprint, str(library))
    options = session_kwargs.pop("sess_options", None) or onnxruntime.SessionOptions()
    for library in [*_built(operators), *libraries]:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(described.source, options, **session_kwargs)


def _chosen(model: Model, ops: Any) -> "tuple[list[Operator], list[Path]]":
    """The operators to register, and the libraries that are there already."""
    if ops is None:
        known = _native(registry.operators().values())
        return [operator for operator in known if _identifier(operator) in model.nodes], []
    operators: list[Operator] = []
    libraries: list[Path] = []
    for item in [ops] if isinstance(ops, str | PathLike) or not isinstance(ops, Sequence) else ops:
        if not isinstance(item, str | PathLike):
            operators.append(_with_kernels(item))
        elif Path(item).suffix in _LIBRARY_SUFFIXES:
            libraries.append(Path(item).resolve())
        else:
            operators.extend(_native(registry.load_file(Path(item))))
    return operators, libraries


def _native(operators: "Iterable[Operator]") -> "list[Operator]":
    return [operator for operator in operators if operator.has_kernels and not operator.definition.is_gradient]


def _identifier(operator: "Operator") -> tuple[str, str]:
    return operator.definition.namespace, operator.definition.onnx_name


def _with_kernels(operator: "Operator") -> "Operator":
    if operator.has_kernels:
        return operator
    raise BuildError(
        f"{operator.definition.name} has no kernels, so there is nothing to register for it. Leave it out of `ops` "
        "(the model runs the function it carries), or give it kernels=[...]."
    )


def _built(operators: "Iterable[Operator]") -> list[Path]:
    """One library for each definition file that an operator comes from."""
    files: dict[str, list[Operator]] = {}
    for operator in operators:
        files.setdefault(operator.defined_in, []).append(operator)
    return [
        cached_library([operator.kernel_spec() for operator in registry.compiled_together(group)])
        for group in files.values()
    ]


def _require_same(model: Model, name: str, fingerprint: str, origin: str) -> None:
    exported = model.fingerprints.get(name)
    if exported is not None and exported != fingerprint:
        raise ExportError(
            f"{name}: the model was exported from another definition (fingerprint {exported}) than that of {origin} "
            f"(fingerprint {fingerprint}). Export the model again, or use the library of the definition that it was "
            "exported from."
        )
