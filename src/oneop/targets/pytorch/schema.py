"""Writes a definition in torch's schema language."""

import json
import math
from collections.abc import Sequence
from typing import Any

import torch

from oneop.definition.record import Attribute, Definition, Input, Output


def schema_text(definition: Definition, base: str | None = None, *, more: Sequence[str] = ()) -> str:
    """The schema of an operator, or of its twin under another ``base``, without the namespace.

    ``more`` keyword arguments come before the attributes.

    A default that the language cannot say (a list of strings, infinity, -0.0) is left out: whoever calls ``torch.ops``
    then gives the attribute; calls through the Operator fill it in.
    """
    inputs = [_input(item) for item in definition.inputs]
    attributes = [*more, *(_attribute(item) for item in definition.attributes)]
    arguments = ", ".join([*inputs, *(["*"] if attributes else []), *attributes])
    outputs = [_output(definition, item) for item in definition.outputs]
    single = len(outputs) == 1
    results = outputs[0].rpartition(" ")[0] if single else f"({', '.join(outputs)})"
    return f"{base or definition.base}({arguments}) -> {results}"


def schema_has_default(attribute: Attribute) -> bool:
    """Whether the schema says the attribute's default."""
    return "=" in _attribute(attribute)


def _input(item: Input) -> str:
    kind = {"required": "Tensor", "optional": "Tensor?", "variadic": "Tensor[]"}[item.arity]
    return f"{kind} {item.name}{'=None' if item.has_default else ''}"


def _output(definition: Definition, item: Output) -> str:
    variadic = item.mirrors is not None and definition.input(item.mirrors).arity == "variadic"
    return f"{'Tensor[]' if variadic else 'Tensor'} {item.name}"


def _attribute(item: Attribute) -> str:
    plain = f"{item.kind.schema}{'?' if item.optional else ''} {item.name}"
    if item.is_required:
        return plain
    candidate = f"{plain}={_literal(item.default)}"
    return candidate if not has_minus_zero(item.default) and _says(candidate, item.default) else plain


def has_minus_zero(value: Any) -> bool:
    entries = value if isinstance(value, tuple | list) else (value,)
    return any(type(entry) is float and entry == 0 and math.copysign(1, entry) < 0 for entry in entries)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value)


def _says(argument: str, value: Any) -> bool:
    try:
        parsed = torch._C.parse_schema(f"oneop::probe(Tensor x, *, {argument}) -> Tensor").arguments[1].default_value
    except Exception:  # whatever torch's parser, written in C++, makes of a text that it cannot read
        return False
    found = tuple(parsed) if isinstance(parsed, list) else parsed
    return type(found) is type(value) and found == value
