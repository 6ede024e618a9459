"""Writes a definition's attributes and element types as ONNX has them."""

import math
import struct
from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir

from oneop.definition.dtypes import DTYPES
from oneop.definition.record import Attribute, Definition
from oneop.errors import ExportError


def attributes(definition: Definition, values: Mapping[str, Any]) -> list[ir.Attr]:
    """Every attribute of a call, in the definition's order, defaults too. None is said by leaving the attribute out.

    Raises ExportError where None is given for an attribute whose default is another value: left out, it would mean
    that value.
    """
    for item in definition.attributes:
        if values[item.name] is None and not item.is_required and item.default is not None:
            raise ExportError(
                f"{definition.name}: attribute `{item.name}` is None in this call, and its default is {item.default!r}."
                f" ONNX says None by leaving an attribute out, which means the default. Give `{item.name}` the"
                " default None."
            )
    return [
        attribute(definition, item, values[item.name])
        for item in definition.attributes
        if values[item.name] is not None
    ]


def attribute(definition: Definition, item: Attribute, value: Any) -> ir.Attr:
    kind = ir.AttributeType[item.kind.onnx]
    entries = list(value) if item.kind.is_list else [value]
    if item.kind.element is float:
        entries = [float(entry) for entry in entries]
        _require_float32(definition, item, entries)
    elif item.kind.element in (int, bool):
        entries = [int(entry) for entry in entries]
    return ir.Attr(item.name, kind, entries if item.kind.is_list else entries[0])


def float32(value: float) -> float:
    """The value as ONNX keeps it: 32 bits. 0.1 becomes 0.10000000149011612."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _require_float32(definition: Definition, item: Attribute, values: list[float]) -> None:
    for value in values:
        try:
            struct.pack("<f", value)
        except OverflowError:
            raise ExportError(
                f"{definition.name}: attribute `{item.name}` is {value!r}; ONNX keeps floats in 32 bits, whose "
                "largest is 3.4e38. "
                "Export with a smaller value."
            ) from None
        if value != 0.0 and math.isfinite(value) and float32(value) == 0.0:
            raise ExportError(
                f"{definition.name}: attribute `{item.name}` is {value!r}; ONNX keeps floats in 32 bits, where "
                "that is zero. "
                "Export with a larger value."
            )


def proto(attr: ir.Attr) -> onnx.AttributeProto:
    """The attribute as onnx's own API takes it."""
    found: onnx.AttributeProto = ir.serde.serialize_attribute(attr)
    return found


def dtype_name(dtype: ir.DataType) -> str:
    """What torch and oneop call an element type."""
    return next(entry.name for entry in DTYPES if entry.onnx == dtype.value)
