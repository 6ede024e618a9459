"""What an operator's values have to satisfy, as ``@op.example(index="0 <= index < n")`` says it."""

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from oneop.definition.record import Definition
from oneop.errors import DefinitionError

WORDS = {
    "positive": "above 0",
    "nonnegative": "0 or more",
    "nonzero": "not 0",
    "finite": "no NaN and no infinity",
    "sorted": "in ascending order along the last dimension",
    "unique": "all different along the last dimension",
}
_BOUNDS = {"positive": ("0", True), "nonnegative": ("0", False)}
_GRAMMAR = (
    'Write comparisons with the name in them ("0 <= index < n"), the words '
    f"{', '.join(WORDS)}, or several of these with commas between."
)


@dataclass(frozen=True)
class Bounds:
    """The bounds of one call: ``low`` and ``high`` are numbers or None, strict where the bound itself is excluded."""

    low: float | None = None
    low_strict: bool = False
    high: float | None = None
    high_strict: bool = False
    words: frozenset[str] = frozenset()

    @property
    def is_free(self) -> bool:
        return self.low is None and self.high is None and not self.words

    def integers(self, low: int, high: int) -> tuple[int, int]:
        """The smallest and the largest integer within the bounds; the arguments stand where there is none."""
        least = low if self.low is None else math.floor(self.low) + 1 if self.low_strict else math.ceil(self.low)
        most = high if self.high is None else math.ceil(self.high) - 1 if self.high_strict else math.floor(self.high)
        if self.low is None and self.high is not None:
            least = min(least, most)
        if self.high is None and self.low is not None:
            most = max(most, least + (high - low))
        return least, most

    def admit(self, value: float) -> bool:
        above = self.low is None or (value > self.low if self.low_strict else value >= self.low)
        below = self.high is None or (value < self.high if self.high_strict else value <= self.high)
        return above and below and not ("nonzero" in self.words and value == 0)


@dataclass(frozen=True)
class Constraint:
    """One parameter's: bounds as expressions, and words."""

    text: str
    low: tuple[tuple[str, bool], ...] = ()
    high: tuple[tuple[str, bool], ...] = ()
    words: frozenset[str] = frozenset()


@dataclass
class Constraints:
    """Those of one operator, by the name of an input, an attribute or a dimension."""

    definition: Definition
    found: dict[str, Constraint] = field(default_factory=dict)

    def add(self, given: Mapping[str, str]) -> None:
        """Reads and adds constraints. Raises DefinitionError where one cannot be read, or names nothing."""
        for name, text in given.items():
            if name not in self._names():
                raise DefinitionError(
                    f"{self.definition.name}: a constraint is given for `{name}`, which is no input, attribute or"
                    f" dimension of the operator. Name one of {', '.join(self._names())}."
                )
            if not isinstance(text, str):
                raise DefinitionError(
                    f"{self.definition.name}: the constraint of `{name}` is a {type(text).__name__}. {_GRAMMAR}"
                )
            known = self.found.get(name)
            self.found[name] = _merged(known, self._read(name, text))

    def bounds(self, name: str, scope: Mapping[str, Any]) -> Bounds:
        """The bounds of a parameter; ``scope`` has the sizes and attributes of the call that are known by now."""
        constraint = self.found.get(name)
        if constraint is None:
            return Bounds()
        low = [(value, strict) for text, strict in constraint.low if (value := _value(text, scope)) is not None]
        high = [(value, strict) for text, strict in constraint.high if (value := _value(text, scope)) is not None]
        least, least_strict = max(low) if low else (None, False)
        most, excluded = min((value, not strict) for value, strict in high) if high else (None, True)
        return Bounds(least, least_strict, most, not excluded, constraint.words)

    def violation(self, name: str, value: Any, scope: Mapping[str, Any]) -> str | None:
        """How a value breaks the constraint of its parameter, in words; None where it does not."""
        if name not in self.found or value is None:
            return None
        bounds = self.bounds(name, scope)
        text = self.found[name].text
        for item in value if isinstance(value, list | tuple) else [value]:
            broken = _tensor_violation(item, bounds) if isinstance(item, Tensor) else _number_violation(item, bounds)
            if broken is not None:
                return f'{broken}; its constraint is "{text}"{_shown(text, scope)}'
        return None

    def _names(self) -> list[str]:
        return [*self.definition.parameters(), *self.definition.dims]

    def _read(self, name: str, text: str) -> Constraint:
        low: list[tuple[str, bool]] = []
        high: list[tuple[str, bool]] = []
        words: set[str] = set()
        for clause in _clauses(text):
            if clause in WORDS:
                words.add(clause)
                if clause in _BOUNDS:
                    low.append(_BOUNDS[clause])
                continue
            self._comparison(name, text, clause, low, high)
        return Constraint(text, tuple(low), tuple(high), frozenset(words))

    def _comparison(
        self, name: str, text: str, clause: str, low: list[tuple[str, bool]], high: list[tuple[str, bool]]
    ) -> None:
        try:
            tree = ast.parse(clause, mode="eval").body
        except (SyntaxError, ValueError):
            tree = None
        if not isinstance(tree, ast.Compare):
            raise self._unreadable(name, text, clause)
        sides = [tree.left, *tree.comparators]
        places = [place for place, side in enumerate(sides) if isinstance(side, ast.Name) and side.id == name]
        if len(places) != 1:
            raise self._unreadable(name, text, clause)
        for place, operator in enumerate(tree.ops):
            smaller, larger = place, place + 1
            if isinstance(operator, ast.Gt | ast.GtE):
                smaller, larger = larger, smaller
            elif not isinstance(operator, ast.Lt | ast.LtE):
                raise self._unreadable(name, text, clause)
            strict = isinstance(operator, ast.Lt | ast.Gt)
            if smaller == places[0]:
                high.append((self._bound(name, text, sides[larger]), strict))
            elif larger == places[0]:
                low.append((self._bound(name, text, sides[smaller]), strict))
            else:
                raise self._unreadable(name, text, clause)

    def _bound(self, name: str, text: str, tree: ast.expr) -> str:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id not in ("min", "max"):
                numbers = [item.name for item in self.definition.attributes if item.kind.element in (int, float)]
                if node.id not in (*self.definition.dims, *numbers):
                    raise DefinitionError(
                        f'{self.definition.name}: the constraint "{text}" of `{name}` names `{node.id}`, which is no'
                        " dimension and no number among the attributes. Name one of"
                        f" {', '.join([*self.definition.dims, *numbers])}."
                    )
            elif not isinstance(node, _ARITHMETIC):
                raise self._unreadable(name, text, ast.unparse(tree))
        return ast.unparse(tree)

    def _unreadable(self, name: str, text: str, clause: str) -> DefinitionError:
        return DefinitionError(
            f'{self.definition.name}: the constraint "{text}" of `{name}` cannot be read at `{clause}`. {_GRAMMAR}'
        )


_ARITHMETIC = (
    ast.BinOp, ast.UnaryOp, ast.USub, ast.UAdd, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod,
    ast.Constant, ast.Name, ast.Load, ast.Call,
)  # fmt: skip


def _clauses(text: str) -> list[str]:
    """Splits at the commas that stand in no parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _value(text: str, scope: Mapping[str, Any]) -> float | None:
    """The value of a bound; None where a name in it has none in this call (only an absent input binds it)."""
    names = [node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)]
    if any(name not in ("min", "max") and scope.get(name) is None for name in names):
        return None
    # The text was taken apart by `_bound` and holds arithmetic only.
    value: float = eval(text, {"__builtins__": {}, "min": min, "max": max}, dict(scope))
    return value


def _merged(known: Constraint | None, new: Constraint) -> Constraint:
    if known is None:
        return new
    text = known.text if known.text == new.text else f"{known.text}, {new.text}"
    return Constraint(text, (*known.low, *new.low), (*known.high, *new.high), known.words | new.words)


def _number_violation(value: Any, bounds: Bounds) -> str | None:
    if isinstance(value, int | float) and not bounds.admit(value):
        return f"{value} is not admitted"
    return None


def _tensor_violation(tensor: Tensor, bounds: Bounds) -> str | None:
    if tensor.numel() == 0:
        return None
    values = tensor.detach()
    outside = values != values
    if bounds.low is not None:
        outside = outside | ~(values > bounds.low if bounds.low_strict else values >= bounds.low)
    if bounds.high is not None:
        outside = outside | ~(values < bounds.high if bounds.high_strict else values <= bounds.high)
    if "nonzero" in bounds.words:
        outside = outside | (values == 0)
    if "finite" in bounds.words and values.dtype.is_floating_point:
        outside = outside | ~values.isfinite()
    elif bounds.low is None and bounds.high is None and "nonzero" not in bounds.words:
        outside = outside & False
    if bool(outside.any()):
        return f"it holds {values[outside].flatten()[0].item()}"
    ordered = values.sort(-1).values if values.ndim else values
    if "sorted" in bounds.words and not bool((ordered == values).all()):
        return "it is not sorted"
    if "unique" in bounds.words and values.ndim and bool((ordered.diff(dim=-1) == 0).any()):
        return "it holds the same value twice"
    return None


def _shown(text: str, scope: Mapping[str, Any]) -> str:
    names = dict.fromkeys(word for word in _names_in(text) if isinstance(scope.get(word), int | float))
    return f", with {', '.join(f'{name} = {scope[name]}' for name in names)}" if names else ""


def _names_in(text: str) -> list[str]:
    found: list[str] = []
    for clause in _clauses(text):
        if clause not in WORDS:
            found.extend(node.id for node in ast.walk(ast.parse(clause, mode="eval")) if isinstance(node, ast.Name))
    return found
