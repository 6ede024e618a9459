"""Reads an annotated Python function as the definition of an operator."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from oneop.definition import attributes, dtypes, words
from oneop.definition.attributes import REQUIRED, AttributeKind
from oneop.definition.checks import check
from oneop.definition.dims import DimError, Shape, parse_shape
from oneop.definition.dtypes import DTYPES, ElementType
from oneop.definition.record import Arity, Attribute, Definition, Input, Layout, Output
from oneop.errors import DefinitionError

TENSOR_HINT = 'write an input as `x: Float[Tensor, "n k"]` (jaxtyping)'
ATTRIBUTE_HINT = (
    "an attribute is float, int, bool, str, Literal[...], list[int], list[float], list[str], or `| None` of one of"
    " these"
)


def definition_of(
    function: Callable[..., Any],
    name: str,
    *,
    onnx_name: str | None = None,
    layout: Layout = "contiguous",
    native_only: bool = False,
    scope: Mapping[str, Any] | None = None,
) -> Definition:
    """The definition that a function's signature states. Raises DefinitionError, which names the parameter.

    ``scope`` resolves names in string annotations that the function's module does not hold, such as a caller's own.
    """
    check_name(name)
    if layout not in ("contiguous", "strided"):
        raise DefinitionError(f'{name}: layout={layout!r} is not known. Write layout="contiguous" or layout="strided".')
    hints = _hints(function, name, scope)
    inputs: list[Input] = []
    found: list[Attribute] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            _refuse(name, parameter.name, "takes any number of arguments", 'write `xs: list[Float[Tensor, "n k"]]`')
        if parameter.name not in hints:
            _refuse(name, parameter.name, "has no annotation", f"{TENSOR_HINT}; {ATTRIBUTE_HINT}")
        if parameter.kind == parameter.KEYWORD_ONLY:
            found.append(_attribute(name, parameter, hints[parameter.name]))
        else:
            inputs.append(_input(name, parameter, hints[parameter.name]))
    if "return" not in hints:
        raise DefinitionError(f'{name}: the result has no annotation; write `-> Float[Tensor, "n m"]`.')
    definition = Definition(
        name=name,
        inputs=tuple(inputs),
        attributes=tuple(found),
        outputs=_outputs(name, hints["return"], scope),
        onnx_name=onnx_name if onnx_name is not None else camel_case(name.partition("::")[2]),
        layout=layout,
        native_only=native_only,
        doc=inspect.getdoc(function) or "",
    )
    check(definition)
    return definition


def output_type_of(function: Callable[..., Any], scope: Mapping[str, Any] | None = None) -> type | None:
    """The NamedTuple class that a function returns, or None where it returns one tensor."""
    returned = _hints(function, getattr(function, "__name__", "?"), scope).get("return")
    return returned if _is_named_tuple(returned) else None


def camel_case(base: str) -> str:
    """
    >>> camel_case("scaled_linear")
    'ScaledLinear'
    """
    return "".join(part[:1].upper() + part[1:] for part in base.split("_"))


def check_name(name: str) -> None:
    if not isinstance(name, str):
        raise DefinitionError(
            f'oneop.op takes the name of the operator, not {_spell(type(name))}. Write @oneop.op("namespace::name")'
            " above the function."
        )
    namespace, separator, base = name.partition("::")
    good = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", namespace) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", base)
    if not (separator and good):
        raise DefinitionError(
            f"{name!r} is not the name of an operator. Write namespace and name with ASCII letters, digits and _: "
            '"demo::scaled_linear".'
        )
    if namespace in words.TAKEN_NAMESPACES:
        raise DefinitionError(
            f"{name}: the namespace `{namespace}` belongs to {words.TAKEN_NAMESPACES[namespace]}. Choose your own."
        )
    for part in (namespace, base):
        if part in words.C_WORDS or "__" in part:
            raise DefinitionError(
                f"{name}: `{part}` cannot be a name in C and C++. Choose another, such as"
                f" `{part.strip('_').replace('__', '_')}_op`."
            )


def _hints(function: Callable[..., Any], name: str, scope: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, localns=dict(scope) if scope else None, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{name}: an annotation names `{error.name}`, which its module does not define. Import it at the top of the"
            " file."
        ) from error
    except (TypeError, SyntaxError, ValueError, AttributeError) as error:
        raise DefinitionError(
            f"{name}: an annotation cannot be evaluated: {error}. {TENSOR_HINT[0].upper()}{TENSOR_HINT[1:]}."
        ) from error


def _refuse(name: str, parameter: str, what: str, remedy: str) -> NoReturn:
    raise DefinitionError(f"{name}: parameter `{parameter}` {what}. {remedy[0].upper()}{remedy[1:]}.")


def _is_tensor(annotation: Any) -> bool:
    if not (hasattr(annotation, "dim_str") and hasattr(annotation, "dtypes")):
        return False
    kind = getattr(annotation, "array_type", None)  # torch is not imported here, so its class is known by its name
    return any(
        base.__module__.startswith("torch") and base.__name__ == "Tensor" for base in getattr(kind, "__mro__", ())
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    rest = [item for item in get_args(annotation) if item is not type(None)]
    if len(rest) != 1 or len(rest) == len(get_args(annotation)):
        return annotation, False
    return rest[0], True


def _spell(annotation: Any) -> str:
    return (
        annotation.__name__
        if isinstance(annotation, type) and not get_args(annotation)
        else str(annotation).replace("typing.", "")
    )


def _input(name: str, parameter: inspect.Parameter, annotation: Any) -> Input:
    arity: Arity = "required"
    inner, optional = _without_none(annotation)
    if optional:
        arity = "optional"
    elif get_origin(annotation) in (list, Sequence) and get_args(annotation):
        arity, inner = "variadic", get_args(annotation)[0]
    if not _is_tensor(inner):
        kind, _, _ = _attribute_kind(annotation)
        if kind is not None:
            _refuse(
                name,
                parameter.name,
                f"is {_spell(annotation)}, an attribute, but positional",
                "put `*` before it: attributes are keyword-only",
            )
        _refuse(
            name, parameter.name, f"is {_spell(annotation)}, which is no tensor that oneop can describe", TENSOR_HINT
        )
    if parameter.default not in (inspect.Parameter.empty, None) or (parameter.default is None and arity != "optional"):
        _refuse(
            name,
            parameter.name,
            f"has the default {parameter.default!r}",
            "only an optional input has one, and it is None",
        )
    element, shape = _tensor(name, f"parameter `{parameter.name}`", inner)
    return Input(parameter.name, arity, element, shape, has_default=parameter.default is None)


def _tensor(name: str, where: str, annotation: Any) -> tuple[ElementType, Shape]:
    try:
        shape = parse_shape(annotation.dim_str)
    except DimError as error:
        raise DefinitionError(f"{name}: {where}: {error}.") from None
    label = annotation.dtype.__name__
    admitted = annotation.dtypes
    known = DTYPES if not isinstance(admitted, tuple) else tuple(item for item in DTYPES if item.name in admitted)
    if not known:
        raise DefinitionError(
            f"{name}: {where} is {label}, a dtype that oneop does not know. It knows {', '.join(dtypes.BY_NAME)} and"
            " the classes Float, Int, UInt, Integer, Num, Real, Inexact, Bool and Shaped."
        )
    return ElementType(label, known), shape


def _attribute(name: str, parameter: inspect.Parameter, annotation: Any) -> Attribute:
    kind, optional, choices = _attribute_kind(annotation)
    if kind is None:
        inner, _ = _without_none(annotation)
        if _is_tensor(inner):
            _refuse(name, parameter.name, "is a tensor, but keyword-only", "put it before `*`: inputs are positional")
        _refuse(name, parameter.name, f"is {_spell(annotation)}, which is no attribute", ATTRIBUTE_HINT)
    if parameter.default is inspect.Parameter.empty:
        return Attribute(parameter.name, kind, REQUIRED, optional, choices)
    try:
        default = attribute_value(Attribute(parameter.name, kind, REQUIRED, optional, choices), parameter.default)
    except ValueError as error:
        _refuse(
            name,
            parameter.name,
            f"has the default {parameter.default!r}, which {error}",
            f"give a value of type {_spell(annotation)}",
        )
    return Attribute(parameter.name, kind, default, optional, choices)


def _attribute_kind(annotation: Any) -> tuple[AttributeKind | None, bool, tuple[Any, ...] | None]:
    inner, optional = _without_none(annotation)
    if get_origin(inner) is Literal:
        choices = get_args(inner)
        optional = optional or None in choices
        choices = tuple(choice for choice in choices if choice is not None)
        kinds = {type(choice) for choice in choices}
        for kind in attributes.KINDS:
            if not kind.is_list and kinds == {kind.element} and kind.element in (int, str):
                return kind, optional, choices
        return None, optional, None
    for kind in attributes.KINDS:
        if kind.is_list and get_origin(inner) in (list, Sequence) and get_args(inner) == (kind.element,):
            return kind, optional, None
        if not kind.is_list and inner is kind.element:
            return kind, optional, None
    return None, optional, None


def attribute_value(attribute: Attribute, value: Any) -> Any:
    """The value as the record and every target hold it: lists are tuples, an int given for a float is a float.

    Raises ValueError, whose text continues "... which".
    """
    if value is None:
        if attribute.optional:
            return None
        raise ValueError("is None")
    kind = attribute.kind
    if kind.is_list:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise ValueError(f"is {type(value).__name__}, not {kind.annotation}")
        return tuple(_element_value(kind, item) for item in value)
    result = _element_value(kind, value)
    if attribute.choices is not None and result not in attribute.choices:
        raise ValueError(f"is not one of {', '.join(map(repr, attribute.choices))}")
    return result


def _element_value(kind: AttributeKind, value: Any) -> Any:
    wanted = kind.element
    if wanted is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("is too large for a float") from None
    if isinstance(value, str) and not _is_unicode(value):
        raise ValueError("is not valid Unicode")
    if isinstance(value, wanted) and isinstance(value, bool) == (wanted is bool):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError("does not fit 64 bits")
        return value
    raise ValueError(f"is {type(value).__name__}, not {wanted.__name__}")


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_named_tuple(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, tuple) and hasattr(annotation, "_fields")


def _outputs(name: str, annotation: Any, scope: Mapping[str, Any] | None) -> tuple[Output, ...]:
    if _is_tensor(annotation):
        return (Output("out", *_tensor(name, "the result", annotation)),)
    if not _is_named_tuple(annotation):
        raise DefinitionError(
            f'{name}: the result is {_spell(annotation)}. Return one tensor, `-> Float[Tensor, "n m"]`, or a NamedTuple'
            " of tensors, whose field names name the outputs."
        )
    try:
        hints = typing.get_type_hints(annotation, localns=dict(scope) if scope else None, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{name}: an annotation of {annotation.__name__} names `{error.name}`, which its module does not define."
        ) from error
    outputs = []
    for field_name in annotation._fields:
        hint = hints.get(field_name)
        if not _is_tensor(hint):
            raise DefinitionError(
                f"{name}: output `{field_name}` is {_spell(hint)}. Every field of {annotation.__name__} is one tensor."
            )
        outputs.append(Output(field_name, *_tensor(name, f"output `{field_name}`", hint)))
    return tuple(outputs)
