"""Who keeps a graph alive: the variable, attribute or closure that leads to it, and the line that fills it."""

import gc
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from oneop.epochs.collector import live_tensors
from oneop.epochs.graphs import Graphs, walk
from oneop.epochs.records import Place
from oneop.epochs.sources import best_line, filling_line

DEEPEST = 5
"""How many containers inside each other are followed from a tensor to a name."""

MOST_TENSORS, MOST_CONTAINERS, MOST_LOOKS = 5_000, 4, 12
"""Bounds of the search. A look for what refers to an object goes through all objects, some 50 ms."""

FEWEST_STEPS = 3
"""The variables of a loop hold the graph of its last step, or of the last two, as they should."""


@dataclass(frozen=True)
class Holder:
    """A name from which graphs are reached: through how many tensors, and of how many watched steps."""

    place: Place
    tensors: int
    steps: int

    @property
    def is_grave(self) -> bool:
        """More than the variables of a loop hold, as they should. Of many steps, only a few nodes may be watched."""
        return self.steps > 1 and max(self.steps, self.tensors) >= FEWEST_STEPS


def holders_of_graphs(graphs: Graphs, model: nn.Module, frame: FrameType | None) -> tuple[Holder, ...]:
    """Those names, the one that keeps most first. ``frame``: where the user's variables are looked for."""
    keeping = _keeping_tensors(graphs)
    holders = list(_Search(model, frame).holders(keeping)) if keeping else []
    most = max((holder.steps for holder in holders), default=0)
    grave = [holder for holder in holders if holder.is_grave and holder.steps >= most / 4]
    return tuple(sorted(grave, key=lambda holder: -holder.steps)[:4])


def _keeping_tensors(graphs: Graphs) -> list[tuple[Tensor, set[int]]]:
    """Tensors whose graph has watched nodes, and the steps of those that were reached from no tensor before it.

    The youngest come first: a running value reaches the losses that it is made of, and is younger.
    """
    found = []
    seen: set[Any] = set()
    tensors = [tensor for tensor in live_tensors() if tensor.grad_fn is not None]
    for tensor in reversed(tensors[-MOST_TENSORS:]):
        steps = {step for node in walk([tensor.grad_fn], seen) if (step := graphs.step_of(node)) is not None}
        if steps:
            found.append((tensor, steps))
    return found


class _Search:
    """From tensors upwards, through what refers to them, to something that has a name."""

    def __init__(self, model: nn.Module, frame: FrameType | None) -> None:
        self._modules = {id(module): name for name, module in model.named_modules()}
        self._frames = [(current, dict(current.f_locals)) for current in _frames(frame)]
        self._looks = MOST_LOOKS
        # What is only there because of this search, or because variables were looked at.
        self._own = {id(self.__dict__), id(self._modules), id(self._frames)}
        for entry in self._frames:
            self._own |= {id(entry), id(entry[1])}
            if entry[0].f_code.co_name != "<module>":
                self._own.add(id(entry[0].f_locals))

    def holders(self, keeping: list[tuple[Tensor, set[int]]]) -> Iterator[Holder]:
        steps = {id(tensor): of for tensor, of in keeping}
        everything = set().union(*steps.values())
        for tensor, of in keeping:
            place = self._variable(tensor)
            if place is not None:
                yield Holder(place, 1, len(of))
                if 4 * len(of) >= 3 * len(everything):
                    return  # it explains nearly all: no need to look further
        self._own |= {id(keeping), *(id(entry) for entry in keeping)}
        containers = []
        for container in self._referrers(tuple(tensor for tensor, _ in keeping)):
            inside = [item for item in gc.get_referents(container) if id(item) in steps]
            if inside:
                containers.append((len(set().union(*(steps[id(item)] for item in inside))), container, inside[-1]))
        containers.sort(key=lambda entry: -entry[0])
        for count, container, item in containers[:MOST_CONTAINERS]:
            place = self._named(container, item) if count > 1 else None
            if place is not None:
                yield Holder(place, _with_graph(container), count)

    def _named(self, container: Any, item: Any) -> Place | None:
        """The name of a container that holds ``item``, or of the nearest one further up."""
        level, seen = [(container, item)], {id(item)}
        for _ in range(DEEPEST):
            above = []
            for outer, inner in level:
                seen.add(id(outer))
                place = self._name(outer, inner)
                if place is not None:
                    return place
            for outer, _inner in level:
                above += [(found, outer) for found in self._referrers((outer,)) if id(found) not in seen]
            self._own |= {id(above), *(id(pair) for pair in above)}
            # Dictionaries and objects lead to a name; lists and tuples may be this search's own.
            above.sort(key=lambda pair: isinstance(pair[0], list | tuple | CellType))
            level = above[:MOST_CONTAINERS]
        return None

    def _name(self, container: Any, item: Any) -> Place | None:
        if isinstance(container, CellType):
            return self._closure(container)
        if isinstance(container, dict):
            key = next((key for key, value in container.items() if value is item), None)
            place = self._global(container, key) or self._owned(container, key)
            if place is not None:
                return place
        elif not isinstance(container, list | tuple | set | frozenset):
            for key, value in getattr(container, "__dict__", {}).items():
                if value is item:
                    return self._attribute(container, key)
        return self._variable(container)

    def _referrers(self, items: tuple[Any, ...]) -> list[Any]:
        """What refers to one of these and is neither ours nor Python's own; nothing once enough was looked at.

        A tuple, handed on as it is: ``gc.get_referrers`` leaves out the one of its arguments.
        """
        if self._looks == 0:
            return []
        self._looks -= 1
        return [
            found
            for found in gc.get_referrers(*items)
            if id(found) not in self._own
            and not isinstance(found, FrameType | GeneratorType | ModuleType)
            and not type(found).__module__.startswith("oneop.epochs")
        ]

    def _variable(self, item: Any) -> Place | None:
        """The variable of a running function, or of the top level of its file, that is this very object."""
        for frame, variables in self._frames:
            for name, value in variables.items():
                if value is item:
                    code = frame.f_code
                    found = filling_line(code.co_filename, name, attribute=False, code=code)
                    where = "at the top level" if code.co_name == "<module>" else f"of {code.co_qualname}()"
                    return Place(name, f"the variable `{name}` {where}", code.co_filename, *(found or (None, None)))
        return None

    def _global(self, variables: dict[Any, Any], key: Any) -> Place | None:
        module = sys.modules.get(str(variables.get("__name__")))
        if module is None or module.__dict__ is not variables:
            return None
        file = getattr(module, "__file__", None)
        found = filling_line(file, key, attribute=False) if file else None
        return Place(key, f"the global variable `{key}` of {module.__name__}", file, *(found or (None, None)))

    def _owned(self, variables: dict[Any, Any], key: Any) -> Place | None:
        for owner in self._referrers((variables,)):
            if getattr(owner, "__dict__", None) is variables:
                return self._attribute(owner, key)
        return None

    def _attribute(self, owner: Any, key: str) -> Place | None:
        if isinstance(owner, torch._C._FunctionBase):
            return None  # a ctx: what is kept on it has a diagnosis of its own
        kind = owner if isinstance(owner, type) else type(owner)
        module = self._modules.get(id(owner))
        text = f"the attribute `{key}` of {'the class' if kind is owner else 'a'} {kind.__qualname__}"
        files = [_file(kind), *(frame.f_code.co_filename for frame, _ in self._frames)]
        file, found = best_line([file for file in dict.fromkeys(files) if file], key)
        line, code = found or (None, None)
        return Place(key, text, file, line, code, module)

    def _closure(self, cell: CellType) -> Place | None:
        for cells in self._referrers((cell,)):
            if not isinstance(cells, tuple):
                continue
            for function in self._referrers((cells,)):
                if isinstance(function, FunctionType) and function.__closure__ is cells:
                    index = next(number for number, inner in enumerate(cells) if inner is cell)
                    name, code = function.__code__.co_freevars[index], function.__code__
                    found = filling_line(code.co_filename, name, attribute=False)
                    owner = f"the variable `{name}` that {function.__qualname__}() closes over"
                    return Place(name, owner, code.co_filename, *(found or (code.co_firstlineno, None)))
        return None


def _with_graph(container: Any) -> int:
    return sum(isinstance(item, Tensor) and item.grad_fn is not None for item in gc.get_referents(container))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The user's running functions: from the block that is watched, or the loop that ended an epoch, outwards."""
    while frame is not None:
        if not str(frame.f_globals.get("__name__")).startswith("oneop.epochs"):
            yield frame
        frame = frame.f_back


def _file(kind: type) -> str | None:
    try:
        return inspect.getsourcefile(kind)
    except (OSError, TypeError):
        return None
