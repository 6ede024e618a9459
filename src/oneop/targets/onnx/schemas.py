"""Makes operators known to onnx itself, so that its checker knows their inputs, attributes and types."""

import onnx
from onnx.defs import OpSchema

from oneop.definition.record import Attribute, Definition, Input, Output
from oneop.errors import ExportError
from oneop.targets.onnx import nodes
from oneop.targets.onnx.inferring import inference_of
from oneop.targets.plugins import NODE_ATTRIBUTES

VERSION = 1
"""The version of every operator's domain."""

_registered: dict[tuple[str, str], tuple[str, str]] = {}
"""The operator (name, fingerprint) whose schema stands under a domain and type."""


def register(definition: Definition) -> None:
    """Registers the schema of an operator with onnx, once."""
    key, mine = (definition.namespace, definition.onnx_name), (definition.name, definition.fingerprint)
    known = _registered.get(key)
    if known == mine:
        return
    if known is not None and known[0] != definition.name:
        raise ExportError(
            f"{definition.name}: its ONNX node would be {key[0]}::{key[1]}, which {known[0]} has already. "
            "Give one of them another onnx_name=."
        )
    if known is not None:
        onnx.defs.deregister_schema(definition.onnx_name, VERSION, definition.namespace)
    elif onnx.defs.has(definition.onnx_name, definition.namespace):
        raise ExportError(
            f"{definition.name}: onnx knows a node {key[0]}::{key[1]} already, which oneop did not define. "
            "Choose another namespace, or another onnx_name=."
        )
    onnx.defs.register_schema(schema(definition))
    _registered[key] = mine


def schema(definition: Definition) -> OpSchema:
    """The definition as an ``onnx.OpSchema``: a type constraint for each dtype variable, and shape inference."""
    made = OpSchema(
        definition.onnx_name,
        definition.namespace,
        VERSION,
        doc=definition.doc,
        inputs=[_input(item) for item in definition.inputs],
        outputs=[_output(definition, item) for item in definition.outputs],
        type_constraints=[
            (element.name, [dtype.onnx_type for dtype in element.dtypes], "") for element in definition.elements
        ],
        attributes=[*(_attribute(definition, item) for item in definition.attributes), *_for_plugins(definition)],
    )
    if hasattr(made, "set_type_and_shape_inference_function"):  # onnx 1.17 and newer
        made.set_type_and_shape_inference_function(inference_of(definition))
    return made


def _for_plugins(definition: Definition) -> list[OpSchema.Attribute]:
    taken = {item.name for item in definition.attributes}
    return [
        OpSchema.Attribute(name, OpSchema.AttrType.STRING, "for TensorRT", required=False)
        for name in NODE_ATTRIBUTES
        if name not in taken
    ]


_OPTIONS = {
    "required": OpSchema.FormalParameterOption.Single,
    "optional": OpSchema.FormalParameterOption.Optional,
    "variadic": OpSchema.FormalParameterOption.Variadic,
}


def _input(item: Input) -> OpSchema.FormalParameter:
    return OpSchema.FormalParameter(item.name, item.element.name, param_option=_OPTIONS[item.arity])


def _output(definition: Definition, item: Output) -> OpSchema.FormalParameter:
    variadic = item.mirrors is not None and definition.input(item.mirrors).arity == "variadic"
    return OpSchema.FormalParameter(
        item.name, item.element.name, param_option=_OPTIONS["variadic" if variadic else "required"]
    )


def _attribute(definition: Definition, item: Attribute) -> OpSchema.Attribute:
    if item.is_required or item.default is None:
        kind = getattr(OpSchema.AttrType, item.kind.onnx)
        return OpSchema.Attribute(item.name, kind, "", required=item.is_required and not item.optional)
    default = nodes.attribute(definition, item, item.default)
    return OpSchema.Attribute(item.name, nodes.proto(default), "")
