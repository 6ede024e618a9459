"""Renders dimension expressions as C, one checked step a line, so that the first error is the one Python reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oneop.definition.dims import Binary, BinaryOperator, Call, Expr, Name, Number
from oneop.kernels.literals import c_int64, c_string

_FUNCTIONS: dict[BinaryOperator, str] = {
    "+": "oneop_add",
    "-": "oneop_subtract",
    "*": "oneop_multiply",
    "//": "oneop_floor_divide",
    "%": "oneop_modulo",
}


@dataclass
class Steps:
    """The lines of a C function ``(dims, attributes, fault)`` that computes an expression, and its result.

    ``sizes`` and ``attributes`` are the indexes of names in the two arrays.
    """

    sizes: Mapping[str, int]
    attributes: Mapping[str, int]
    lines: list[str] = field(default_factory=list)

    def compute(self, expr: Expr) -> str:
        """Adds the lines that compute an expression; returns the C expression of its value."""
        match expr:
            case Number(value):
                return c_int64(value)
            case Name(name) if name in self.sizes:
                return f"dims[{self.sizes[name]}]"
            case Name(name):
                where = f"&attributes[{self.attributes[name]}]"
                return self._step(f"oneop_int_attribute({where}, {c_string(name)}, fault)")
            case Binary(operator, left, right):
                a, b = self.compute(left), self.compute(right)
                return self._step(f"{_FUNCTIONS[operator]}({a}, {b}, {c_string(str(expr))}, fault)")
            case Call(function, arguments):
                first, *others = [self.compute(argument) for argument in arguments]
                for other in others:
                    first = self._step(f"oneop_{function}({first}, {other})")
                return first

    def _step(self, call: str) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"const int64_t {name} = {call};")
        return name
