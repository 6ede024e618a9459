"""The kinds of attribute, and their name in every language and runtime: one table, read by every target."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AttributeKind:
    """One kind of attribute.

    ``annotation`` is how Python writes it, ``schema`` how torch's schema language does, ``onnx`` the name in ONNX's
    AttributeProto.AttributeType, ``tag`` the ``oneop_attribute_kind`` of the kernel ABI.
    """

    name: str
    annotation: str
    element: type
    is_list: bool
    schema: str
    onnx: str
    tag: str
    c_type: str
    cpp_type: str


KINDS: tuple[AttributeKind, ...] = (
    AttributeKind("float", "float", float, False, "float", "FLOAT", "ONEOP_FLOAT", "double", "double"),
    AttributeKind("int", "int", int, False, "int", "INT", "ONEOP_INT", "int64_t", "std::int64_t"),
    AttributeKind("bool", "bool", bool, False, "bool", "INT", "ONEOP_BOOL", "bool", "bool"),
    AttributeKind("str", "str", str, False, "str", "STRING", "ONEOP_STRING", "oneop_string", "std::string_view"),
    AttributeKind(
        "floats", "list[float]", float, True, "float[]", "FLOATS", "ONEOP_FLOATS", "oneop_floats", "oneop::List<double>"
    ),
    AttributeKind(
        "ints", "list[int]", int, True, "int[]", "INTS", "ONEOP_INTS", "oneop_ints", "oneop::List<std::int64_t>"
    ),
    AttributeKind(
        "strings", "list[str]", str, True, "str[]", "STRINGS", "ONEOP_STRINGS", "oneop_strings", "oneop::Strings"
    ),
)

BY_NAME: dict[str, AttributeKind] = {kind.name: kind for kind in KINDS}


class Required:
    """The type of REQUIRED, which stands where an attribute has no default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = Required()
