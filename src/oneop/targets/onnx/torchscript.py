"""torch's older exporter, ``torch.onnx.export(..., dynamo=False)``: the same nodes, written by symbolic functions."""

import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch.onnx import JitScalarType, symbolic_helper  # type: ignore[attr-defined]

from oneop import registry
from oneop.definition.record import Attribute, Definition, Input
from oneop.errors import ExportError
from oneop.targets.onnx import nodes, schemas
from oneop.targets.onnx.calls import MARK, Call, Mark, Tensor

if TYPE_CHECKING:
    from oneop.operator import Operator

_SUFFIXES = {"FLOAT": "f", "INT": "i", "STRING": "s", "FLOATS": "f", "INTS": "i", "STRINGS": "s"}
"""How torch's graph spells the kind of an attribute."""

_CONSTANTS = {"float": "f", "int": "i", "bool": "b", "str": "s", "floats": "fs", "ints": "is"}
"""How symbolic_helper asks for a constant."""

_NUMBER = "oneop_call"
"""The attribute that a node carries from torch's graph to ours: which recorded call it is."""

_recorded: ContextVar[list[Call] | None] = ContextVar("recorded", default=None)
"""The calls of the model that oneop.export is having traced."""


def trace(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    fallback: str,
    options: Mapping[str, Any],
) -> ir.Model:
    """The model as the older exporter writes it, its nodes marked for ``completing``."""
    calls: list[Call] = []
    recording = _recorded.set(calls)
    with tempfile.TemporaryDirectory(prefix="oneop.") as folder:
        file = Path(folder) / "model.onnx"
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=".*legacy TorchScript-based ONNX export", category=DeprecationWarning
            )
            try:
                torch.onnx.export(model, args, os.fspath(file), kwargs=kwargs, dynamo=False, **options)
            except RuntimeError as error:
                _explain(error)
                raise
            finally:
                _recorded.reset(recording)
        traced = ir.load(file)
        ir.external_data.load_to_model(traced)
    for node in traced.graph.all_nodes():
        number = node.attributes.pop(_NUMBER, None)
        if number is not None:
            call = calls[number.as_int()]
            schemas.register(call.definition)
            node.meta[MARK] = Mark(call, fallback)
    return traced


def _explain(error: RuntimeError) -> None:
    """torch's tracer cannot record a list of strings; its message names neither operator nor attribute."""
    if "unsupported input list type: str" not in str(error):
        return
    having = [
        operator.definition.name
        for operator in registry.operators().values()
        if any(item.kind.name == "strings" for item in operator.definition.attributes)
    ]
    raise ExportError(
        "oneop.export: torch's older exporter cannot record an attribute that is a list of strings, which"
        f" {', '.join(having)} has. Leave dynamo=False out."
    ) from error


# ---- What runs while torch writes the graph -------------------------------------------------------------------------


def write_node(operator: "Operator", graph: Any, values: Sequence[Any]) -> Any:
    """The symbolic function of an operator: what torch calls for each call of it in a traced model."""
    definition = operator.definition
    entries = [_entries(item, value) for item, value in zip(definition.inputs, values, strict=False)]
    constants = zip(definition.attributes, values[len(definition.inputs) :], strict=True)
    attributes = {item.name: _constant(definition, item, value) for item, value in constants}
    written = {
        f"{attribute.name}_{_SUFFIXES[attribute.type.name]}": attribute.value
        for attribute in nodes.attributes(definition, attributes)
    }
    calls = _recorded.get()
    if calls is not None:
        tensors = tuple(
            tuple(_tensor(definition, item, entry) for entry in own if not symbolic_helper._is_none(entry))
            for item, own in zip(definition.inputs, entries, strict=True)
        )
        written[f"{_NUMBER}_i"] = len(calls)
        calls.append(Call(operator, tensors, attributes))
    name = f"{definition.namespace}::{definition.onnx_name}"
    count = _output_count(definition)
    found = graph.op(name, *[entry for own in entries for entry in own], **written, outputs=count)
    return found if count == 1 else tuple(found)


def _tensor(definition: Definition, item: Input, value: Any) -> Tensor:
    sizes = symbolic_helper._get_tensor_sizes(value)
    if sizes is None:
        raise ExportError(
            f"{definition.name}: torch's older exporter does not know the shape of input `{item.name}` in this model."
            " Leave dynamo=False out."
        )
    return Tensor(str(JitScalarType.from_value(value).dtype()).removeprefix("torch."), tuple(sizes))


def _entries(item: Input, value: Any) -> list[Any]:
    if item.arity == "variadic":
        return list(symbolic_helper._unpack_list(value))
    return [value]


def _output_count(definition: Definition) -> int:
    if any(item.mirrors and definition.input(item.mirrors).arity == "variadic" for item in definition.outputs):
        raise ExportError(
            f"{definition.name}: it gives a list of tensors, which torch's older exporter cannot write. Leave"
            " dynamo=False out."
        )
    return len(definition.outputs)


def _constant(definition: Definition, item: Attribute, value: Any) -> Any:
    if symbolic_helper._is_none(value):
        return None
    kind: Any = _CONSTANTS[item.kind.name]
    found: Any = symbolic_helper._maybe_get_const(value, kind)
    if isinstance(found, torch.Value):
        raise ExportError(
            f"{definition.name}: attribute `{item.name}` is computed from the model's inputs, and an attribute of an"
            " ONNX node is a constant. Pass a number."
        )
    if isinstance(found, torch.Tensor):
        found = found.tolist()
    return item.kind.element(found) if not item.kind.is_list else [item.kind.element(entry) for entry in found]
