"""hypothesis's strategies for the calls of an operator: what a definition and its constraints admit."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import torch
from hypothesis import HealthCheck, Phase, assume, find, given, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample, Unsatisfiable

from oneop.check.cases import Case, Structure
from oneop.check.constraints import Bounds, Constraints
from oneop.check.layouts import LAYOUTS
from oneop.check.values import STYLES, Made, NoValueError, make
from oneop.definition.binding import Binding, bind
from oneop.definition.dims import Anything, Binary, Call, DimError, Name, Number, evaluate
from oneop.definition.dtypes import DType
from oneop.definition.record import NEEDS, Attribute, Definition, Input
from oneop.errors import CallError

Draw = Callable[[st.SearchStrategy[Any]], Any]
Drawn = TypeVar("Drawn")

ELEMENTS = 80_000
"""The most elements that the inputs and outputs of a case have together."""
WORK = 4_000_000
"""The largest product of all sizes of a case: the steps of a contraction."""
SMALL, ODD, LARGE = 4, (5, 7, 9, 17, 33), (65, 257, 1031, 4099, 20011)
HUGE = (35003, 20011, 9001, 2003, 257)


@dataclass(frozen=True)
class Focus:
    """What cases are to look at: the sizes, layouts, styles and attributes that they are drawn from.

    ``sizes`` is a set of "small" (1 to 4), "several" (2 to 7), "zero", "one", "odd", "large" and "huge" (one
    dimension at a time).
    """

    name: str = "ordinary"
    sizes: tuple[str, ...] = ("small",)
    layouts: tuple[str, ...] = ("contiguous",)
    styles: tuple[str, ...] = ("simple", "random")
    attributes: str = "any"  # "default", "any"


ORDINARY = Focus()
TYPICAL = Focus("typical", sizes=("several",), styles=("random",))
FOCUSES: tuple[Focus, ...] = (
    ORDINARY,
    Focus("layouts", layouts=tuple(LAYOUTS)),
    Focus("size 0 and 1", sizes=("zero", "one", "small")),
    Focus("odd sizes", sizes=("odd", "small"), styles=("random", "wide")),
    Focus("large sizes", sizes=("large", "small"), styles=("random",)),
    Focus("zeros", styles=("zeros",)),
    Focus("NaN and infinity", styles=("special",)),
    Focus(
        "everything at once",
        sizes=("small", "odd", "zero", "one"),
        layouts=tuple(LAYOUTS),
        styles=("simple", "random", "wide"),
    ),
)


@dataclass(frozen=True)
class Space:
    """The calls of one operator: its definition, its constraints, and the dtypes that are looked at."""

    definition: Definition
    constraints: Constraints
    dtypes: tuple[tuple[DType, ...], ...]

    def structures(self, focus: Focus = ORDINARY) -> st.SearchStrategy[Structure]:
        """What a compiled graph or a file fixes."""
        return st.composite(_structure)(self, focus)

    def cases(self, focus: Focus = ORDINARY, structure: Structure | None = None) -> st.SearchStrategy[Case]:
        """Calls; all of one structure where that is given."""
        return st.composite(_case)(self, focus, structure)


def sample(strategy: st.SearchStrategy[Drawn], count: int, seed: int) -> list[Drawn]:
    """At most ``count`` of what a strategy makes, such as cases: the same for the same seed."""
    found: list[Drawn] = []

    @with_seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(drawn: Drawn) -> None:
        found.append(drawn)

    try:
        collect()
    except Unsatisfiable:
        return []
    return found[:count]


def smallest(strategy: st.SearchStrategy[Case], fails: Callable[[Case], bool], count: int, seed: int) -> Case | None:
    """The first of ``count`` cases that fails, made as small as hypothesis can; None where none fails."""
    try:
        return find(
            strategy,
            fails,
            settings=settings(
                max_examples=count,
                database=None,
                deadline=None,
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
            random=Random(seed),
        )
    except (NoSuchExample, Unsatisfiable):
        return None


def in_order(strategy: st.SearchStrategy[Case], count: int, seed: int) -> list[Case]:
    """The cases that ``smallest`` looks at while none fails."""
    found: list[Case] = []

    def never_fails(case: Case) -> bool:
        found.append(case)
        return False

    smallest(strategy, never_fails, count, seed)
    return found


def _structure(draw: Draw, space: Space, focus: Focus) -> Structure:
    definition = space.definition
    dtypes = draw(st.sampled_from(space.dtypes))
    present = [item.name for item in definition.inputs if item.arity == "optional" and draw(st.booleans())]
    counts = [(item.name, draw(st.integers(1, 3))) for item in definition.inputs if item.arity == "variadic"]
    ranks = [(name, draw(st.integers(0, 2))) for name in definition.batches]
    scope: dict[str, Any] = {}
    for item in definition.attributes:
        value = draw(_attribute_values(space, item, scope, focus))
        scope[item.name] = value
    return Structure(dtypes, frozenset(present), tuple(counts), tuple(ranks), tuple(scope.items()))


def _attribute_values(space: Space, item: Attribute, scope: Mapping[str, Any], focus: Focus) -> st.SearchStrategy[Any]:
    """Values of an attribute: its default first, then ordinary ones, then extreme ones."""
    if item.name == NEEDS and space.definition.is_gradient:
        everything = 2 ** len(space.definition.differentiates) - 1
        return st.one_of(st.just(everything), st.integers(1, everything))
    bounds = space.constraints.bounds(item.name, scope)
    default = () if item.is_required else (item.default,)
    if focus.attributes == "default" and default:
        return st.just(item.default)
    if item.choices is not None:
        pool: list[Any] = [*default, *item.choices]
    else:
        pool = [*default, *_pool(item, bounds)]
    if item.optional:
        pool.append(None)
    admitted = [value for value in pool if value is None or _admitted(bounds, value)]
    return st.sampled_from(list(dict.fromkeys(admitted)) or pool)


def _admitted(bounds: Bounds, value: Any) -> bool:
    return all(
        bounds.admit(one) for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, int | float)
    )


def _pool(item: Attribute, bounds: Bounds) -> list[Any]:
    elements = _elements(item, bounds)
    if not item.kind.is_list:
        return elements
    first = elements[: 3 if item.kind.element is not str else 4]
    length = len(item.default) if isinstance(item.default, tuple) and item.default else 2
    # A list may have any length; but one whose default has two entries is often a pair, as padding and stride are.
    return [tuple(itertools.islice(itertools.cycle(first[k:] + first[:k]), length)) for k in range(len(first))]


def _elements(item: Attribute, bounds: Bounds) -> list[Any]:
    if item.kind.element is float:
        return [*_floats(bounds)]
    if item.kind.element is int:
        return [*_integers(item, bounds)]
    return [False, True] if item.kind.element is bool else ["", "a", "naïve", 'a "quoted" one', "two words"]


def _floats(bounds: Bounds) -> list[float]:
    if bounds.low is not None and bounds.high is not None:
        width = bounds.high - bounds.low
        ends = [value for value in (bounds.low, bounds.high) if bounds.admit(value)]
        return [bounds.low + width / 2, *ends, bounds.low + 0.3 * width]
    if bounds.low is not None or bounds.high is not None:
        base, sign = (bounds.low, 1) if bounds.low is not None else (bounds.high, -1)
        assert base is not None
        return [base + sign * away for away in (0.5, 2.0, 0.0, 1e-3, 1e3)]
    return [2.0, 0.5, 0.0, -1.5, 0.7, 1e-3, 1e3]


def _integers(item: Attribute, bounds: Bounds) -> list[int]:
    base = item.default if isinstance(item.default, int) else 1
    if bounds.low is None and bounds.high is None:
        near = [2, 3, 1, 0, base + 1, 7]
        return [value for value in near if value >= 0] + ([base - 1] if base < 0 else [])
    low, high = bounds.integers(base, base + 4)
    return [value for value in dict.fromkeys((low, low + 1, min(low + 2, high), high)) if low <= value <= high]


def _case(draw: Draw, space: Space, focus: Focus, fixed: Structure | None) -> Case:
    definition = space.definition
    structure = fixed if fixed is not None else draw(space.structures(focus))
    attributes = {name: list(value) if isinstance(value, tuple) else value for name, value in structure.attributes}
    sizes, groups = _sizes(draw, space, focus, structure)
    shapes = _shapes(draw, definition, structure, sizes, groups, attributes)
    binding = _bound(definition, shapes, attributes)
    scope = {**attributes, **sizes}
    for name, value in [*attributes.items(), *sizes.items()]:
        assume(space.constraints.violation(name, value, scope) is None)
    inputs, made = _inputs(draw, space, focus, structure, shapes, scope)
    seed = draw(st.integers(1, 2**12))
    return Case(definition, structure, tuple(inputs), attributes, dict(binding.dims), made, seed=seed)


def _sizes(
    draw: Draw, space: Space, focus: Focus, structure: Structure
) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """A size for each name that an input that is there binds, and for each dimension of each leading group."""
    definition = space.definition
    given = [item for item in definition.inputs if item.arity != "optional" or item.name in structure.present]
    names = list(dict.fromkeys(name for item in given for name in item.shape.binds()))
    ranks = dict(structure.ranks)
    places = [*names, *((group, index) for group, rank in ranks.items() for index in range(rank))]
    pool = HUGE if "huge" in focus.sizes else LARGE if "large" in focus.sizes else ()
    big = draw(st.sampled_from(places)) if pool and places else None
    drawn: dict[Any, int] = {}
    for place in places:
        if place == big:
            size = draw(st.sampled_from(pool))
        else:
            size = draw(_size(tuple(kind for kind in focus.sizes if kind not in ("large", "huge"))))
        if isinstance(place, str):
            bounds = space.constraints.bounds(place, {**dict(structure.attributes), **drawn})
            low, high = bounds.integers(0, max(size, 6))
            size = min(max(size, low), high)
        drawn[place] = size
    assume(math.prod(drawn.values()) <= WORK)
    sizes = {name: drawn[name] for name in names}
    groups = {group: tuple(drawn[group, index] for index in range(rank)) for group, rank in ranks.items()}
    return sizes, groups


def _size(kinds: tuple[str, ...]) -> st.SearchStrategy[int]:
    pools: dict[str, st.SearchStrategy[int]] = {
        "small": st.integers(1, SMALL),
        "several": st.integers(2, 7),
        "one": st.just(1),
        "zero": st.just(0),
        "odd": st.one_of(st.sampled_from(ODD), st.integers(min(ODD), 40)),  # every remainder of 8 and of 16
    }
    return st.one_of(*(pools[kind] for kind in pools if kind in kinds))


def _shapes(
    draw: Draw,
    definition: Definition,
    structure: Structure,
    sizes: Mapping[str, int],
    groups: Mapping[str, tuple[int, ...]],
    attributes: Mapping[str, Any],
) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of the tensors of each input, as ``bind`` takes them."""
    counts = dict(structure.counts)
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for item in definition.inputs:
        absent = item.arity == "optional" and item.name not in structure.present
        count = 0 if absent else counts.get(item.name, 1)
        shapes[item.name] = [_shape(draw, item, sizes, groups, attributes) for _ in range(count)]
    return shapes


def _shape(
    draw: Draw,
    item: Input,
    sizes: Mapping[str, int],
    groups: Mapping[str, tuple[int, ...]],
    attributes: Mapping[str, Any],
) -> tuple[int, ...]:
    leading = groups[item.shape.batch] if item.shape.batch is not None else ()
    found = []
    for dim in item.shape.dims:
        match dim:
            case Number(value):
                found.append(value)
            case Name(name):
                found.append(sizes[name])
            case Binary() | Call():
                try:
                    size = evaluate(dim, {**attributes, **sizes})
                except (DimError, KeyError):  # a name that only an absent input binds leaves the size free
                    size = draw(st.integers(1, SMALL))
                assume(0 <= size <= ELEMENTS)
                found.append(size)
            case Anything():
                found.append(draw(st.integers(1, SMALL)))
            case _:
                raise AssertionError(f"{item.name}: an input has the dimension {dim}")
    return (*leading, *found)


def _bound(
    definition: Definition, shapes: Mapping[str, Sequence[tuple[int, ...]]], attributes: Mapping[str, Any]
) -> Binding:
    """The binding of a call that fits the definition; other calls are thrown away."""
    try:
        binding = bind(definition, shapes, attributes)
        outputs = [shape for item in definition.outputs for shape in binding.output_shapes(item)]
    except CallError:
        assume(False)
        raise
    total = sum(math.prod(shape) for found in shapes.values() for shape in found)
    total += sum(math.prod(size or 0 for size in shape) for shape in outputs)
    assume(total <= ELEMENTS)
    return binding


def _inputs(
    draw: Draw,
    space: Space,
    focus: Focus,
    structure: Structure,
    shapes: Mapping[str, Sequence[tuple[int, ...]]],
    scope: Mapping[str, Any],
) -> tuple[list[Any], dict[str, Made]]:
    dtypes = dict(zip((element.name for element in space.definition.elements), structure.dtypes, strict=True))
    positive = [size for found in shapes.values() for shape in found for size in shape]
    below = min([size for size in positive if size > 0] + [SMALL]) if 0 not in positive else 0
    seed = draw(st.integers(0, 2**16))
    inputs: list[Any] = []
    made: dict[str, Made] = {}
    for item in space.definition.inputs:
        bounds = space.constraints.bounds(item.name, scope)
        tensors = []
        for index, shape in enumerate(shapes[item.name]):
            label = f"{item.name}[{index}]" if item.arity == "variadic" else item.name
            made[label] = _made(draw, focus, shape, bounds, seed + len(made), below)
            dtype: torch.dtype = getattr(torch, dtypes[item.element.name].name)
            try:
                tensors.append(make(shape, dtype, made[label]))
            except NoValueError:
                assume(False)
        inputs.append(tensors if item.arity == "variadic" else tensors[0] if tensors else None)
    return inputs, made


def _made(draw: Draw, focus: Focus, shape: tuple[int, ...], bounds: Bounds, seed: int, below: int) -> Made:
    possible = [name for name in focus.layouts if LAYOUTS[name].fits(shape)] or ["contiguous"]
    if "unique" in bounds.words:
        possible = [name for name in possible if not name.startswith("stride 0")]
    style = draw(st.sampled_from([style for style in STYLES if style in focus.styles]))
    return Made(draw(st.sampled_from(possible)), style, seed, bounds, below)
