"""What an exported node and the TensorRT plugin for it have to agree on, besides the operator's own attributes."""

from collections.abc import Sequence

from oneop.definition.record import Definition

PLUGIN_VERSION = "1"
"""``plugin_version``: which plugin TensorRT's parser looks for."""

PLUGIN_NAMESPACE = ""
"""``plugin_namespace``. Every way of registering a plugin serves the empty one; others depend on the way."""

FINGERPRINT_FIELD = "oneop_fingerprint"
"""The definition's fingerprint, so that a plugin refuses a node of another definition."""

COUNTS_FIELD = "oneop_inputs"
"""How many tensors each input has, such as "1 0 3": which inputs are absent, and how long a variadic one is."""

NODE_ATTRIBUTES = ("plugin_version", "plugin_namespace", FINGERPRINT_FIELD, COUNTS_FIELD)
"""Strings that a node for TensorRT carries besides the operator's attributes."""

PARSER_ATTRIBUTES = ("plugin_version", "plugin_namespace", "tensorrt_plugin_shape_input_indices")
"""Attributes that TensorRT's parser reads itself, whatever node they stand on."""


def node_attributes(definition: Definition, counts: Sequence[int]) -> dict[str, str]:
    """The values of NODE_ATTRIBUTES; ``counts`` are the tensors that each input has."""
    values = (PLUGIN_VERSION, PLUGIN_NAMESPACE, definition.fingerprint, " ".join(map(str, counts)))
    return dict(zip(NODE_ATTRIBUTES, values, strict=True))
