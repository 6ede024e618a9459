"""Dimension expressions: what a jaxtyping dimension string says, as a tree that targets evaluate or render."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

BinaryOperator = Literal["+", "-", "*", "//", "%"]
Function = Literal["min", "max"]

_OPERATORS: dict[type[ast.operator], BinaryOperator] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}


class DimError(ValueError):
    """A dimension string or a value in it is wrong. Whoever knows the operator turns it into a user's error."""


@dataclass(frozen=True, slots=True)
class Number:
    """An integer literal."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Name:
    """A bound dimension, or an int attribute. In an input's shape, a name on its own binds the size."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Binary:
    """Python's integer arithmetic: // and % round towards minus infinity."""

    operator: BinaryOperator
    left: "Expr"
    right: "Expr"

    def __str__(self) -> str:
        level = _PRECEDENCE[self.operator]
        left, right = str(self.left), str(self.right)
        if isinstance(self.left, Binary) and _PRECEDENCE[self.left.operator] < level:
            left = f"({left})"
        if isinstance(self.right, Binary) and _PRECEDENCE[self.right.operator] <= level:
            right = f"({right})"
        return f"{left}{self.operator}{right}"


@dataclass(frozen=True, slots=True)
class Call:
    """min(a,b,...) or max(a,b,...)."""

    function: Function
    arguments: tuple["Expr", ...]

    def __str__(self) -> str:
        return f"{self.function}({','.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Anything:
    """``_``: any size, bound to no name."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True, slots=True)
class Unknown:
    """``?k``: a size of an output that is known only after the kernel ran."""

    name: str

    def __str__(self) -> str:
        return f"?{self.name}"


Expr = Number | Name | Binary | Call
Dim = Expr | Anything | Unknown


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of one tensor, after any number of leading ones if ``batch`` is a name."""

    dims: tuple[Dim, ...]
    batch: str | None = None

    def __str__(self) -> str:
        return " ".join(([f"*{self.batch}"] if self.batch else []) + [str(dim) for dim in self.dims])

    def binds(self) -> Iterator[str]:
        """The names that this shape gives a value when it is an input's."""
        yield from (dim.name for dim in self.dims if isinstance(dim, Name))

    def unknown(self) -> Iterator[str]:
        """The names (``?k``) that an output's shape gives a value once the kernel ran."""
        yield from (dim.name for dim in self.dims if isinstance(dim, Unknown))


def parse_shape(text: str) -> Shape:
    """Reads a jaxtyping dimension string.

    >>> print(parse_shape("*batch n (h+2*pad-k)//stride+1"))
    *batch n (h+2*pad-k)//stride+1
    """
    batch: str | None = None
    dims: list[Dim] = []
    for position, word in enumerate(text.split()):
        if word.startswith("*"):
            if position != 0:
                raise DimError(f"`{word}` stands behind other dimensions; a group of leading dimensions comes first")
            batch = _identifier(word[1:], word)
        elif word == "...":
            raise DimError("`...` has no name; write `*batch` first, so that outputs can name it")
        elif word.startswith("#"):
            raise DimError(f"`{word}` asks for broadcasting; give the sizes that differ names of their own, or `1`")
        elif word == "_":
            dims.append(Anything())
        elif word.startswith("?"):
            dims.append(Unknown(_identifier(word[1:], word)))
        else:
            dims.append(parse_expression(word.partition("=")[2] or word))
    return Shape(tuple(dims), batch)


def parse_expression(text: str) -> Expr:
    """Reads one dimension: names, integers, ``+ - * // %``, ``min()``, ``max()``, parentheses."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise DimError(f"`{text}` is not an expression (write it without spaces)") from None
    try:
        return _convert(tree, text)
    except RecursionError:
        raise DimError(f"`{text[:40]}...` is nested too deeply") from None


def _convert(tree: ast.expr, text: str) -> Expr:
    match tree:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            if value > INT64_MAX:
                raise DimError(f"`{value}` in `{text}` does not fit 64 bits")
            return Number(value)
        case ast.Name(id=name):
            return Name(name)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return Binary(_OPERATORS[type(operator)], _convert(left, text), _convert(right, text))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Binary("-", Number(0), _convert(operand, text))
        case ast.Call(func=ast.Name(id="min" | "max" as function), args=arguments, keywords=[]) if len(arguments) >= 2:
            return Call(function, tuple(_convert(argument, text) for argument in arguments))
    raise DimError(
        f"`{text}` is not a dimension; it may hold names, integers, + - * // %, min(a,b), max(a,b) and parentheses"
    )


def _identifier(name: str, word: str) -> str:
    if not name.isidentifier():
        raise DimError(f"`{word}` is not a dimension; `{name}` is not a name")
    return name


def names(expr: Expr) -> Iterator[str]:
    """The names in an expression, from left to right."""
    match expr:
        case Name(name):
            yield name
        case Binary(_, left, right):
            yield from names(left)
            yield from names(right)
        case Call(_, arguments):
            for argument in arguments:
                yield from names(argument)


def compute_constants(expr: Expr) -> None:
    """Raises DimError where a part that holds no name has no value, or is a divisor of zero: whatever the sizes are."""
    if not any(True for _ in names(expr)):
        evaluate(expr, {})
        return
    match expr:
        case Binary(operator, left, right):
            compute_constants(left)
            compute_constants(right)
            if operator in ("//", "%") and not any(True for _ in names(right)) and evaluate(right, {}) == 0:
                raise DimError(f"`{expr}` divides by zero")
        case Call(_, arguments):
            for argument in arguments:
                compute_constants(argument)


def evaluate(
    expr: Expr,
    values: Mapping[str, Any],
    *,
    minimum: Callable[[Any, Any], Any] = min,
    maximum: Callable[[Any, Any], Any] = max,
) -> Any:
    """The value of an expression. Values may be symbolic integers; then pass minimum and maximum that know them.

    Raises DimError where it divides by zero or leaves 64 bits, as the generated C does.
    """
    match expr:
        case Number(value):
            return value
        case Name(name):
            return _in_range(values[name], expr)
        case Binary(operator, left, right):
            a = evaluate(left, values, minimum=minimum, maximum=maximum)
            b = evaluate(right, values, minimum=minimum, maximum=maximum)
            return _in_range(_apply(operator, a, b, expr), expr)
        case Call(function, arguments):
            results = [evaluate(argument, values, minimum=minimum, maximum=maximum) for argument in arguments]
            pick = minimum if function == "min" else maximum
            best = results[0]
            for result in results[1:]:
                best = pick(best, result)
            return best


def _apply(operator: BinaryOperator, a: Any, b: Any, expr: Expr) -> Any:
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
    if isinstance(b, int) and b == 0:
        raise DimError(f"`{expr}` divides by zero")
    return a // b if operator == "//" else a % b


def _in_range(value: Any, expr: Expr) -> Any:
    if isinstance(value, int) and not INT64_MIN < value <= INT64_MAX:
        raise DimError(f"`{expr}` does not fit 64 bits")
    return value
