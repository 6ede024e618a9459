"""One check under way: the operator, its columns, the time that is left, and the search for failing cases."""

import itertools
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from oneop.check.cases import Case, Structure
from oneop.check.columns import Column, InapplicableError, Programs
from oneop.check.diagnosis import LEAST_TELLING
from oneop.check.drawing import FOCUSES, ORDINARY, Focus, Space, in_order, sample, smallest
from oneop.check.layouts import LAYOUTS
from oneop.check.oracle import ReferenceRefusedError
from oneop.check.results import Finding
from oneop.check.subject import Subject
from oneop.check.transforms import NothingToDifferentiateError
from oneop.errors import OneopError

Examine = Callable[[Case], Finding | None]
"""Looks at one case. Raises ReferenceRefusedError or InapplicableError where it says nothing about the operator."""

SHRINKING_SECONDS = 8.0
EXPLAINING_SECONDS = 3.0
HUGE_SHARE = 0.2
"""Calls of many elements are few."""
FEW = 0.15
"""A row with a smaller share of the cases looks at fewer structures too: each costs a session of its own."""
MIXED = Focus(
    "mixed",
    sizes=("small", "odd", "one", "zero"),
    layouts=tuple(LAYOUTS),
    styles=("simple", "random", "wide"),
    attributes="any",
)
SPECIAL = Focus("NaN and infinity", styles=("special",))
LARGE = Focus("large sizes", sizes=("large", "small"), styles=("random",))
LONG = Focus("long calls", sizes=("huge", "small"), styles=("random",))
"""The first call of it is the largest: one is enough to reach what pieces and threads have to themselves."""


@dataclass(frozen=True)
class Effort:
    """How much is looked at: cases of one focus, structures that are compiled and exported, cases of each, calls.

    ``sure`` cases of each focus are looked at whatever the clock says, one of them in a compiled graph or a file;
    ``repeats`` is how often each concurrent caller calls, in the eager column and in the others.
    """

    cases: int
    structures: int
    cases_of_structure: int
    calls: int
    seconds: float
    sure: int
    repeats: tuple[int, int]


QUICK = Effort(cases=12, structures=2, cases_of_structure=8, calls=400, seconds=10.0, sure=4, repeats=(80, 25))
THOROUGH = Effort(cases=60, structures=5, cases_of_structure=30, calls=3000, seconds=60.0, sure=8, repeats=(400, 200))


@dataclass
class Clock:
    """The end of one cell's time."""

    deadline: float

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.deadline

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()


@dataclass
class Session:
    """What the properties share."""

    subject: Subject
    columns: Sequence[Column]
    programs: Programs
    effort: Effort
    seed: int
    _structures: dict[Any, list[Structure]] = field(default_factory=dict)
    _drawn: dict[Any, list[Case]] = field(default_factory=dict)

    def structures(self, space: Space) -> list[Structure]:
        """The structures that compiled graphs and files are made for."""
        if space.dtypes not in self._structures:
            self._structures[space.dtypes] = _structures(space, self.effort.structures, self.seed)
        return self._structures[space.dtypes]

    def cases(self, space: Space, focus: Focus, structure: Structure | None, count: int) -> Iterator[Case]:
        """What one part of a search looks at. Rows and columns that look at the same share what was drawn, each with a
        copy of its own: a kernel may change its inputs.
        """
        key = (space.dtypes, focus, structure, count)
        if key not in self._drawn:
            self._drawn[key] = in_order(space.cases(focus, structure), count, self.seed)
        return (case.copied() for case in self._drawn[key])


@dataclass
class Outcome:
    """What the search for a failing case of one cell came to."""

    examples: int = 0
    finding: Finding | None = None
    refusals: list[str] = field(default_factory=list)
    inapplicable: list[str] = field(default_factory=list)
    empty: bool = False


def search(
    session: Session,
    column: Column,
    examine: Examine,
    clock: Clock,
    *,
    focuses: Sequence[Focus] = FOCUSES,
    space: Space | None = None,
    share: float = 1.0,
) -> Outcome:
    """Looks at the user's examples, then at cases of each focus, until one fails: that is made small."""
    return _Search(session, column, examine, clock, focuses, space or session.subject.space, share).run()


def one_case(session: Session, column: Column, examine: Examine, focus: Focus) -> Outcome:
    """Looks at one case of the column: the first that says something."""
    space = session.subject.space
    structure = session.structures(space)[0] if column.by_structure else None
    looking = _Search(session, column, examine, Clock(0.0), (focus,), space, 0.0)
    for case in [*session.subject.examples, *sample(space.cases(focus, structure), 12, session.seed)]:
        looking.outcome.finding = looking.look(case)
        if looking.outcome.examples:
            break
    return looking.outcome


class _Search:
    def __init__(
        self,
        session: Session,
        column: Column,
        examine: Examine,
        clock: Clock,
        focuses: Sequence[Focus],
        space: Space,
        share: float,
    ) -> None:
        self.session, self.column, self.examine, self.clock = session, column, examine, clock
        self.focuses, self.space, self.share = focuses, space, share
        self.outcome = Outcome()
        self.known: dict[Any, Finding | None] = {}
        self.found_at: float | None = None
        self.sure = 0  # cases of a focus that are still looked at when the time is over

    def run(self) -> Outcome:
        for case in self.session.subject.examples:
            if self._is_in_space(case):
                finding = self.look(case)
                if finding is not None:
                    self.outcome.finding = self._explained(finding, ORDINARY, case.structure)
                    return self.outcome
        for focus, structure, count in self._parts():
            self.sure = min(count, 1 if self.column.by_structure else self.session.effort.sure)
            first = next(filter(self._fails, self.session.cases(self.space, focus, structure, count)), None)
            if first is not None:
                # The same cases again, up to the one that fails: from there hypothesis makes it smaller.
                found = smallest(self.space.cases(focus, structure), self._fails, count, self.session.seed) or first
                self.outcome.finding = self._explained(self.known[case_key(found)], focus, structure)
                return self.outcome
        return self.outcome

    def _explained(self, shown: Finding | None, focus: Focus, structure: Structure | None) -> Finding | None:
        """With what the numbers say: those of the smallest case, or those of larger ones where it is too small."""
        if shown is None or shown.explain is None:
            return shown
        for finding in itertools.chain([shown], self._larger(focus, structure)):
            said = finding.explain() if finding.explain is not None else None
            if said is not None:
                return replace(shown, pattern=said)
        return shown

    def _larger(self, focus: Focus, structure: Structure | None) -> Iterator[Finding]:
        """Findings of the same focus in calls whose results have some elements."""
        larger = replace(focus, sizes=("several",))
        until = time.monotonic() + EXPLAINING_SECONDS
        for case in sample(self.space.cases(larger, structure), 8, self.session.seed):
            if time.monotonic() > until:
                return
            finding = self.look(case)
            if finding is not None and _elements(finding) >= LEAST_TELLING:
                yield finding

    def _is_in_space(self, case: Case) -> bool:
        return case.structure.dtypes in self.space.dtypes

    def _parts(self) -> Iterator[tuple[Focus, Structure | None, int]]:
        """Focuses, structures and how many cases of each."""
        effort = self.session.effort
        if not self.column.by_structure:
            for focus in self.focuses:
                yield focus, None, self._count(focus, effort.cases)
            return
        structures = self.session.structures(self.space)
        if self.column.is_slow or self.share <= FEW:
            structures = structures[: max(1, effort.structures // 2)]
        for structure in structures:
            for focus in _merged(self.focuses):
                yield focus, structure, self._count(focus, effort.cases_of_structure)

    def _count(self, focus: Focus, most: int) -> int:
        return max(1, int(most * self.share * (HUGE_SHARE if "huge" in focus.sizes else 1.0)))

    def _fails(self, case: Case) -> bool:
        key = case_key(case)
        if key in self.known:
            return self.known[key] is not None
        if self.found_at is not None:
            if time.monotonic() > self.found_at + SHRINKING_SECONDS:
                return False
        elif self.clock.is_over and self.sure <= 0:
            return False
        self.known[key] = self.look(case)
        if self.known[key] is not None and self.found_at is None:
            self.found_at = time.monotonic()
        return self.known[key] is not None

    def look(self, case: Case) -> Finding | None:
        if not self.column.admits(case):
            return None
        try:
            finding = self.examine(case)
        except ReferenceRefusedError as error:
            self.outcome.refusals.append(str(error))
            return None
        except InapplicableError as error:
            self.outcome.inapplicable.append(str(error))
            return None
        except NothingToDifferentiateError:
            return None
        except Exception as error:
            finding = raised(error, case)
        self.outcome.examples += 1
        self.sure -= 1
        return finding


def raised(error: Exception, case: Case | None) -> Finding:
    """The finding that a call raised what it should not have."""
    text = str(error).strip() or "no message"
    first = text.splitlines()[0]
    own = isinstance(error, OneopError)
    details = None if own and first == text else text
    if not own:
        details = "".join(traceback.format_exception(error)[-6:])
    return Finding(f"raised {type(error).__name__}: {first}", case, details=details)


def _elements(finding: Finding) -> int:
    return sum(tensor.numel() for tensor in finding.expected)


def case_key(case: Case) -> Any:
    shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in case.tensors)
    return (case.structure, shapes, tuple(case.made.items()), case.seed)


def _merged(focuses: Sequence[Focus]) -> list[Focus]:
    """For what is slow to start: fewer focuses, each with more in it."""
    styles = {style for focus in focuses for style in focus.styles}
    layouts = {layout for focus in focuses for layout in focus.layouts}
    sizes = {size for focus in focuses for size in focus.sizes}
    found = [ORDINARY] if "simple" in styles else []
    if len(layouts) > 1 or len(sizes) > 1:
        mixed = replace(MIXED, layouts=tuple(name for name in LAYOUTS if name in layouts))
        found.append(replace(mixed, sizes=tuple(size for size in mixed.sizes if size in sizes)))
    if "special" in styles:
        found.append(SPECIAL)
    if "large" in sizes:
        found.append(LARGE)
    if "huge" in sizes:
        found.append(LONG)
    return found


def _structures(space: Space, count: int, seed: int) -> list[Structure]:
    """The first with every optional input and no attribute that is its default, in the first dtypes: there nothing that
    is lost on the way goes unseen. The second has the defaults. Each of the others is unlike those before.
    """
    first_dtypes = Space(space.definition, space.constraints, space.dtypes[:1])
    optional = frozenset(item.name for item in space.definition.inputs if item.arity == "optional")
    defaults = {item.name: item.default for item in space.definition.attributes if not item.is_required}
    drawn = list(dict.fromkeys(sample(first_dtypes.structures(ORDINARY), 40, seed)))
    plain = list(dict.fromkeys(sample(space.structures(replace(ORDINARY, attributes="default")), 40, seed)))
    others = list(dict.fromkeys(sample(space.structures(ORDINARY), 40 * count, seed)))
    chosen: list[Structure] = []

    def choose(candidates: Sequence[Structure], preference: Callable[[Structure], Any]) -> None:
        for structure in sorted(candidates, key=preference, reverse=True):
            if structure not in chosen and _has_calls(space, structure, seed):
                chosen.append(structure)
                return

    def own_attributes(item: Structure) -> int:
        return sum(name in defaults and value != defaults[name] for name, value in item.attributes)

    def unlike(item: Structure) -> int:
        return min((_distance(item, other) for other in chosen), default=0)

    choose(drawn, lambda item: (item.present == optional, own_attributes(item)))
    choose(plain, unlike)
    while len(chosen) < count:
        before = len(chosen)
        choose(others, unlike)
        if len(chosen) == before:
            break
    return chosen[:count]


def _has_calls(space: Space, structure: Structure, seed: int) -> bool:
    """A constraint may leave none: attributes that admit no size, for example."""
    return bool(sample(space.cases(ORDINARY, structure), 3, seed))


def _distance(left: Any, right: Any) -> int:
    pairs = [
        *zip(left.dtypes, right.dtypes, strict=True),
        (left.present, right.present),
        *zip(left.counts, right.counts, strict=True),
        *zip(left.ranks, right.ranks, strict=True),
        *zip(left.attributes, right.attributes, strict=True),
    ]
    different = sum(1 for a, b in pairs if a != b)
    return different + 2 * int(left.present != right.present) + 2 * int(left.dtypes != right.dtypes)


def tensors_of(named: Sequence[tuple[str, Tensor]]) -> list[Tensor]:
    return [tensor for _, tensor in named]
