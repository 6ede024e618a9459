"""An operator's output shapes as C++ that works on the sizes TensorRT hands out."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oneop.definition.dims import (
    Binary,
    Call,
    Dim,
    DimError,
    Expr,
    Name,
    Number,
    Shape,
    Unknown,
    compute_constants,
    evaluate,
    names,
    parse_shape,
)
from oneop.definition.record import Definition, Output
from oneop.errors import BuildError
from oneop.kernels.literals import c_int64

_SPACES = re.compile(r"\s*([-+*/%(),]+)\s*")
"""A dimension string separates dimensions by spaces; a bound is one expression, with spaces as one likes."""
_FUNCTIONS = {"//": "floor_divide", "%": "modulo"}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2}


def unknown_names(definition: Definition) -> tuple[str, ...]:
    """The sizes that only the kernel knows: one size tensor each."""
    return tuple(dict.fromkeys(name for output in definition.outputs for name in output.shape.unknown()))


def parse_bound(definition: Definition, name: str, text: str) -> Expr:
    """Reads the bound of ``?name``. Raises BuildError where it is no expression of what is known before the kernel."""
    where = f"{definition.name}: the bound of `?{name}`, {text!r},"
    if not isinstance(text, str):
        raise BuildError(f"{where} is of type {type(text).__name__}. Write an expression as a string, such as 'n*m'.")
    try:
        parsed = parse_shape(_SPACES.sub(r"\1", text.strip()))
    except DimError as error:
        raise BuildError(f"{where} cannot be read: {error}. Write an expression such as n*m.") from None
    if (
        parsed.batch is not None
        or len(parsed.dims) != 1
        or not isinstance(parsed.dims[0], Number | Name | Binary | Call)
    ):
        raise BuildError(f"{where} is not one expression. Write one such as n*m.")
    known = {*_places(definition), *_int_attributes(definition)}
    for found in names(parsed.dims[0]):
        if found not in known:
            raise BuildError(
                f"{where} names `{found}`, which is not known before the kernel runs. Known are:"
                f" {', '.join(sorted(known))}."
            )
    _require_possible(parsed.dims[0], where)
    return parsed.dims[0]


def _require_possible(expr: Expr, where: str) -> None:
    """Raises BuildError for a number that is no size, and for what no size can be computed with."""
    try:
        compute_constants(expr)
    except DimError as error:
        raise BuildError(f"{where} is no size: {error}. Write an expression such as n*m.") from None
    if not any(True for _ in names(expr)) and evaluate(expr, {}) < 0:
        raise BuildError(f"{where} is negative. Write an expression such as n*m.")


def shape_lines(definition: Definition, bounds: Mapping[str, Expr]) -> list[str]:
    """The body of the function that computes the outputs' shapes."""
    return [*_sizes(definition, bounds), *_unknowns(definition, bounds), *_outputs(definition)]


@dataclass(frozen=True)
class _Place:
    """Where a dimension's size is read: an input that is always there, and the place counted from its end."""

    input: int
    from_end: int
    shown: str


def _places(definition: Definition) -> dict[str, _Place]:
    found: dict[str, _Place] = {}
    for number, item in enumerate(definition.inputs):
        for position, dim in enumerate(item.shape.dims):
            if isinstance(dim, Name) and item.arity != "optional":
                place = _Place(number, len(item.shape.dims) - position, f'{item.name} "{item.shape}"')
                found.setdefault(dim.name, place)
    return found


def _int_attributes(definition: Definition) -> dict[str, int]:
    return {
        item.name: number
        for number, item in enumerate(definition.attributes)
        if item.kind.name == "int" and not item.optional
    }


def _sizes(definition: Definition, bounds: Mapping[str, Expr]) -> Iterator[str]:
    """One line for each name that an output's size or a bound needs."""
    expressions = [dim for output in definition.outputs for dim in output.shape.dims if not isinstance(dim, Unknown)]
    used = dict.fromkeys(name for dim in (*expressions, *bounds.values()) for name in _names(dim))
    places, attributes = _places(definition), _int_attributes(definition)
    for name in used:
        if name in places:
            place = places[name]
            yield f"const trt::Size {name} = oneop_shapes.input({place.input}, {place.from_end}); // {place.shown}"
        else:
            yield f"const trt::Size {name} = oneop_shapes.attribute({attributes[name]});"


def _names(dim: Dim) -> Iterator[str]:
    if isinstance(dim, Number | Name | Binary | Call):
        yield from names(dim)


def _unknowns(definition: Definition, bounds: Mapping[str, Expr]) -> Iterator[str]:
    for number, name in enumerate(unknown_names(definition)):
        bound = _size(bounds[name]) if name in bounds else "oneop_shapes.most_elements()"
        yield f"const trt::Size {name} = oneop_shapes.unknown({number}, {bound});"


def _outputs(definition: Definition) -> Iterator[str]:
    for number, output in enumerate(definition.outputs):
        group = _group(definition, output.shape)
        sizes = ", ".join(_output_size(dim) for dim in output.shape.dims)
        yield f"oneop_shapes.output({number}{group}, {{{sizes}}}); // {_shown(output)}"


def _group(definition: Definition, shape: Shape) -> str:
    """The input that a leading group is taken from, and how many dimensions follow it there."""
    if shape.batch is None:
        return ""
    number, item = next(
        (number, item)
        for number, item in enumerate(definition.inputs)
        if item.shape.batch == shape.batch and item.arity != "optional"
    )
    return f", oneop_shapes.leading({number}, {len(item.shape.dims)})"


def _shown(output: Output) -> str:
    return f'{output.name} "{output.shape}"'


def _output_size(dim: Dim) -> str:
    if isinstance(dim, Unknown):
        return dim.name
    assert isinstance(dim, Number | Name | Binary | Call)  # definitions have no `_` in outputs
    return _size(dim)


def _size(expr: Expr) -> str:
    """An expression as C++; what holds no name is computed here."""
    if not any(True for _ in names(expr)):
        return _integer(evaluate(expr, {}))
    match expr:
        case Name(name):
            return name
        case Binary(operator, left, right) if operator in _FUNCTIONS:
            return f"trt::{_FUNCTIONS[operator]}({_size(left)}, {_size(right)})"
        case Binary(operator, left, right):
            return f"{_operand(left, operator)} {operator} {_operand(right, operator, is_right=True)}"
        case Call(function, arguments):
            first, *others = [_size(argument) for argument in arguments]
            for other in others:
                first = f"trt::{function}({first}, {other})"
            return first
        case Number(value):
            return _integer(value)


def _operand(expr: Expr, outer: str, *, is_right: bool = False) -> str:
    text = _size(expr)
    if isinstance(expr, Binary) and expr.operator in _PRECEDENCE and any(True for _ in names(expr)):
        inner, level = _PRECEDENCE[expr.operator], _PRECEDENCE[outer]
        return f"({text})" if inner < level or (is_right and inner == level) else text
    return f"({text})" if text.startswith("-") else text


def _integer(value: int) -> str:
    return str(value) if abs(value) < 2**31 else c_int64(value)
