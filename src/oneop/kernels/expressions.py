"""Renders dimension expressions as C, one checked step a line, so that the first error is the one Python reports."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from oneop.definition.dims import Binary, BinaryOperator, Call, Expr, Name, Number

_FUNCTIONS: dict[BinaryOperator, str] = {
    "+": "oneop_add",
    "-": "oneop_subtract",
    "*": "oneop_multiply",
    "//": "oneop_floor_divide",
    "%": "oneop_modulo",
}


@dataclass
class Steps:
    """The lines of a C function ``(dims, attributes, fault)`` and the C expression of its result."""

    lines: list[str] = field(default_factory=list)
    result: str = ""


def render(expr: Expr, values: Mapping[str, str], quote: Callable[[str], str]) -> Steps:
    """The steps that compute an expression; ``values`` has the C expression of every name in it."""
    steps = Steps()
    steps.result = _visit(expr, values, quote, steps)
    return steps


def _visit(expr: Expr, values: Mapping[str, str], quote: Callable[[str], str], steps: Steps) -> str:
    match expr:
        case Number(value):
            return f"INT64_C({value})"
        case Name(name):
            return values[name]
        case Binary(operator, left, right):
            a, b = _visit(left, values, quote, steps), _visit(right, values, quote, steps)
            return _step(steps, f"{_FUNCTIONS[operator]}({a}, {b}, {quote(str(expr))}, fault)")
        case Call(function, arguments):
            rendered = [_visit(argument, values, quote, steps) for argument in arguments]
            best = rendered[0]
            for argument in rendered[1:]:
                best = _step(steps, f"oneop_{function}({best}, {argument})")
            return best


def _step(steps: Steps, call: str) -> str:
    name = f"t{len(steps.lines)}"
    steps.lines.append(f"const int64_t {name} = {call};")
    return name
