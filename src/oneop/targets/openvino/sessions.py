"""OpenVINO with oneop's extensions, after a look at whether model and libraries belong together."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneop import registry
from oneop.errors import BuildError, ExportError
from oneop.targets.openvino.installation import installation
from oneop.targets.openvino.library import cached_library
from oneop.targets.openvino.models import Content, ModelProto, opened
from oneop.targets.openvino.native import fingerprints_of
from oneop.targets.openvino.signal_stack import load_cpu_plugin

if TYPE_CHECKING:
    import openvino

    from oneop.operator import Operator

_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll")


def core(
    ops: "Operator | str | PathLike[str] | Sequence[Operator | str | PathLike[str]] | None" = None,
) -> "openvino.Core":
    """An ``openvino.Core`` that knows operators: it reads their nodes from ONNX files and from OpenVINO's own.

    Args:
        ops: what to add: operators, paths of definition files, paths of libraries that ``oneop.build`` wrote, or
            several of these. None stands for every operator that this process defines and that has kernels. Libraries
            are built on demand, into the cache.

    Raises BuildError where a library cannot be built or loaded.
    """
    operators, libraries = _chosen(ops)
    for library in libraries:
        fingerprints_of(library)
    return _core(operators, libraries)


def compile_model(
    model: "str | PathLike[str] | bytes | ModelProto | openvino.Model",
    ops: "Operator | str | PathLike[str] | Sequence[Operator | str | PathLike[str]] | None" = None,
    device: str = "CPU",
    **config: Any,
) -> "openvino.CompiledModel":
    """A compiled model in which the model's operators run their kernels.

    Args:
        model: the path of an ONNX file or of the .xml of a saved model, the bytes of an ONNX file, an
            ``onnx.ModelProto``, or an ``openvino.Model``.
        ops: as in ``core``; None stands for those that the model names.
        device: kernels run on ``"CPU"``.
        config: properties of OpenVINO by their names, such as ``INFERENCE_NUM_THREADS=1``.

    Raises ExportError where the model was exported from another definition of an operator than the one given, or names
    an operator without kernels; BuildError where a library cannot be built or loaded; what OpenVINO raises otherwise.
    """
    installation()
    import openvino

    if isinstance(model, openvino.Model):
        return _core(*_chosen(ops or [])).compile_model(model, device, config)
    with opened(model) as (content, source):
        operators, libraries = _chosen(ops) if ops is not None else (_named(content), [])
        for operator in operators:
            _require_same(content, operator.definition.name, operator.definition.fingerprint, operator.defined_in)
        for library in libraries:
            for name, fingerprint in fingerprints_of(library).items():
                _require_same(content, name, fingerprint, str(library))
        extended = _core(operators, libraries)
        return extended.compile_model(extended.read_model(source), device, config)


def prepare(operators: "Sequence[Operator]") -> list[Path]:
    """Builds the extensions that models on the CPU need for these operators. Raises BuildError."""
    return _built(operators)


def _named(content: Content) -> "list[Operator]":
    """The operators of this process that a model names."""
    known = [operator for operator in registry.operators().values() if not operator.definition.is_gradient]
    return [_with_kernels(operator) for operator in known if content.names(operator.definition)]


def _chosen(ops: Any) -> "tuple[list[Operator], list[Path]]":
    """The operators to add, and the libraries that are there already."""
    if ops is None:
        return _native(registry.operators().values()), []
    operators: list[Operator] = []
    libraries: list[Path] = []
    for item in [ops] if isinstance(ops, str | PathLike) or not isinstance(ops, Sequence) else ops:
        if not isinstance(item, str | PathLike):
            operators.append(_with_kernels(registry.require_operator(item, "oneop.openvino")))
        elif Path(item).suffix in _LIBRARY_SUFFIXES:
            libraries.append(Path(item).resolve())
        else:
            operators.extend(_native(registry.load_file(Path(item))))
    return operators, libraries


def _native(operators: "Iterable[Operator]") -> "list[Operator]":
    return [operator for operator in operators if _has_kernels(operator) and not operator.definition.is_gradient]


def _has_kernels(operator: "Operator") -> bool:
    return "cpu" in operator.devices


def _with_kernels(operator: "Operator") -> "Operator":
    if _has_kernels(operator):
        return operator
    raise ExportError(
        f"{operator.definition.name} has no kernels, and OpenVINO does not run the function that a model carries. "
        'Export the model with fallback="inline", or give the operator kernels=[...].'
    )


def _core(operators: "Iterable[Operator]", libraries: Iterable[Path]) -> "openvino.Core":
    installation()
    import openvino

    made = openvino.Core()
    for library in [*_built(operators), *libraries]:
        try:
            made.add_extension(str(library))
        except RuntimeError as error:
            raise BuildError(f"{library} cannot be added to OpenVINO: {error} Build it again.") from error
    load_cpu_plugin(made)
    return made


def _built(operators: "Iterable[Operator]") -> list[Path]:
    """One library for each definition file that an operator comes from."""
    files: dict[str, list[Operator]] = {}
    for operator in operators:
        files.setdefault(operator.defined_in, []).append(operator)
    return [
        cached_library([one.kernel_spec() for one in registry.compiled_together(group) if _has_kernels(one)])
        for group in files.values()
    ]


def _require_same(model: Content, name: str, fingerprint: str, origin: str) -> None:
    exported = model.fingerprint(name)
    if exported is not None and exported != fingerprint:
        raise ExportError(
            f"{name}: the model was exported from another definition (fingerprint {exported}) than that of {origin} "
            f"(fingerprint {fingerprint}). Export the model again, or use the library of the definition that it was "
            "exported from."
        )
