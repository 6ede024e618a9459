"""oneop.export, and its equivalent for people who call torch.onnx.export themselves."""

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.onnx import ONNXProgram

from oneop.errors import ExportError, OneopError
from oneop.targets.onnx import completing, saving, torch_exporter, torchscript, translating
from oneop.targets.onnx.translating import Fallback, Table

_SAVING = {
    "export_params": "include_initializers",
    "keep_initializers_as_inputs": "keep_initializers_as_inputs",
    "external_data": "external_data",
}
"""torch.onnx.export's names of what is said when a file is written, and ONNXProgram.save's."""


def export(
    model: torch.nn.Module | torch.export.ExportedProgram,
    args: tuple[Any, ...],
    path: str | os.PathLike[str],
    *,
    kwargs: dict[str, Any] | None = None,
    dynamic_shapes: dict[str, Any] | tuple[Any, ...] | list[Any] | None = None,
    fallback: Fallback = "function",
    **torch_onnx_options: Any,
) -> ONNXProgram:
    """Writes a model to an ONNX file in which each call of an operator is one node, of the operator's own name.

    Args:
        model, args, kwargs: the model and example inputs, as for ``torch.onnx.export``. Call ``model.eval()`` first.
        path: the file. It is written whole or not at all.
        dynamic_shapes: the sizes that stay free, as for ``torch.export``. Strings and ``torch.export.Dim`` give them
            their names in the file.
        fallback: what a runtime without the operator's kernels finds. ``"function"``: a model-local function with the
            reference as its body. ``"inline"``: the reference's nodes in place of the node, for runtimes that know no
            functions. ``"none"``: the node only.
        torch_onnx_options: the other options of ``torch.onnx.export``: ``opset_version``, ``input_names``, ... The
            weights go into the file itself unless ``external_data=True`` or the model is larger than 1.5 GB.
            ``verbose=True`` prints torch's steps.

    Every attribute is on the node, defaults too. ONNX keeps float attributes in 32 bits: in a float64 model
    ``alpha=0.1`` is 0.10000000149 in the file, while PyTorch computes with 0.1.

    Raises ExportError, or what an operator raises while the model is traced; what stands at ``path`` stays as it was.

    >>> import oneop, tempfile, torch
    >>> from jaxtyping import Float
    >>> from torch import Tensor
    >>> @oneop.op("readme::shift")
    ... def shift(x: Float[Tensor, "n"], *, by: float = 1.0) -> Float[Tensor, "n"]:
    ...     return x + by
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         return shift(x, by=2.0)
    >>> path = tempfile.mkdtemp() + "/shift.onnx"
    >>> program = oneop.export(Model().eval(), (torch.ones(3),), path, dynamic_shapes=({0: "n"},))
    >>> [(node.domain, node.op_type) for node in program.model.graph]
    [('readme', 'Shift')]
    """
    translating.require_fallback(fallback)
    _require_options(torch_onnx_options)
    target = saving.require_writable(path)
    options = {"verbose": False, **torch_onnx_options}
    to_save = {theirs: options.pop(ours) for ours, theirs in _SAVING.items() if ours in options}
    if options.pop("dynamo", True) is False:
        return _export_older(model, args, target, kwargs, dynamic_shapes, fallback, options, to_save)
    own: Table = {**translating.table(fallback), **(options.pop("custom_translation_table", None) or {})}
    _install_hooks()
    try:
        with _without_torchs_own_warning():
            program = torch.onnx.export(
                model, args, kwargs=kwargs, dynamic_shapes=dynamic_shapes, custom_translation_table=own, **options
            )
    except Exception as error:
        for cause in _causes(error):
            if isinstance(cause, OneopError):
                raise cause from None
        raise
    assert program is not None
    # Done already where the hooks are in place; everything else works without them.
    completing.complete(program.model)
    completing.restore(program.model)
    saving.save(program, target, **to_save)
    return program


def _export_older(
    model: Any,
    args: tuple[Any, ...],
    target: Path,
    kwargs: dict[str, Any] | None,
    dynamic_shapes: Any,
    fallback: Fallback,
    options: dict[str, Any],
    to_save: dict[str, Any],
) -> ONNXProgram:
    """torch.onnx.export(dynamo=False) through the same steps: mark the nodes, put the fallbacks in place, write."""
    if dynamic_shapes is not None:
        raise ExportError(
            "oneop.export: dynamo=False, torch's older exporter, takes no dynamic_shapes. Give dynamic_axes, with "
            "input_names and output_names, or leave dynamo=False out."
        )
    try:
        traced = torchscript.trace(model, args, kwargs, fallback, options)
    except Exception as error:
        for cause in _causes(error):
            if isinstance(cause, OneopError):
                raise cause from None
        raise
    completing.complete(traced)
    program = ONNXProgram(traced, None)
    saving.save(program, target, **to_save)
    return program


def translations(fallback: Fallback = "function") -> Table:
    """The table of every operator that is defined by now, for ``torch.onnx.export(..., custom_translation_table=...)``.

    ``fallback`` is as in ``oneop.export``. The table is a plain dict: entries of your own may be added.

    >>> import oneop
    >>> table = oneop.onnx.translations()
    >>> # torch.onnx.export(model, args, "model.onnx", custom_translation_table=table)
    """
    translating.require_fallback(fallback)
    if not _install_hooks():
        raise ExportError(
            f"oneop.onnx.translations: torch {torch.__version__} has another ONNX exporter inside than oneop knows "
            "(torch 2.13). Call oneop.export, which does not depend on it."
        )
    return translating.table(fallback)


@contextlib.contextmanager
def _without_torchs_own_warning() -> Iterator[None]:
    """torch copies an object of a class that it deprecates itself, and tells the user."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=r"`isinstance\(treespec, LeafSpec\)` is deprecated", category=FutureWarning
        )
        yield


def _install_hooks() -> bool:
    return torch_exporter.install_hooks(
        torch_exporter.Steps(
            completing.require_version,
            completing.complete,
            completing.functions_of,
            completing.protect,
            completing.restore,
        )
    )


def _require_options(options: Mapping[str, Any]) -> None:
    version = options.get("opset_version")
    if version is not None and version < completing.OLDEST_OPSET:
        raise ExportError(
            f"oneop.export: opset_version is {version}. Give {completing.OLDEST_OPSET} or newer, or leave it out."
        )
    if "f" in options:
        raise ExportError("oneop.export: there is no option `f`. Give the file as the third argument, `path`.")


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__
