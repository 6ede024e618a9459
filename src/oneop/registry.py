"""The operators of this process, by name and by the file that defines them."""

import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from oneop.errors import BuildError, DefinitionError

if TYPE_CHECKING:
    from oneop.operator import Operator

_operators: dict[str, "Operator"] = {}
_listeners: "list[Callable[[Operator], None]]" = []
_NOTEBOOK = ""
lock = threading.RLock()
"""Held while operators are defined or built."""


def _new_lock_in_child() -> None:
    global lock
    lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock_in_child)  # the thread that held it is in the parent only


def operators() -> Mapping[str, "Operator"]:
    """Every operator of this process, gradient operators too, by ``namespace::base``."""
    return MappingProxyType(_operators)


def check(operator: "Operator") -> None:
    """Raises DefinitionError where the operator's name is taken by one with another definition."""
    name = operator.definition.name
    known = _operators.get(name)
    if known is not None and known.definition.fingerprint != operator.definition.fingerprint:
        raise DefinitionError(
            f"{name} is defined twice with different signatures: first in {known.defined_in}, now in"
            f" {operator.defined_in}. Rename one of them; to change a signature, start a new process."
        )


def add(operator: "Operator") -> None:
    """Takes an operator in, in the place of one with the same name and definition."""
    _operators[operator.definition.name] = operator
    for listener in _listeners:
        listener(operator)


def subscribe(listener: "Callable[[Operator], None]") -> None:
    """Calls ``listener`` with every operator: those that are defined, and each that will be."""
    with lock:
        for operator in _operators.values():
            listener(operator)
        _listeners.append(listener)


def defined_in(path: str) -> list["Operator"]:
    """The operators that a file defines, in order of definition."""
    return [operator for operator in _operators.values() if operator.defined_in == path]


def defined_with(operator: "Operator") -> list["Operator"]:
    """The operators of the same file; alone where there is none, as in a notebook."""
    place = _place(operator)
    return [operator] if place == _NOTEBOOK else [item for item in _operators.values() if _place(item) == place]


def compiled_together(operators: "Iterable[Operator]") -> list["Operator"]:
    """These operators, and those of the same files that share a kernel source with one of them. A notebook, whose
    cells are no files, counts as one file.

    A source that holds several kernels includes the headers of all of them, so a library takes all or none. The order
    is that of definition, whatever was asked for first: the library is the same.
    """
    found = dict.fromkeys(operators)
    grown = True
    while grown:
        sources = {path for operator in found for path in operator.kernels}
        files = {_place(operator) for operator in found}
        neighbours = [
            operator
            for operator in _operators.values()
            if _place(operator) in files and not sources.isdisjoint(operator.kernels)
        ]
        grown = not found.keys() >= set(neighbours)
        found.update(dict.fromkeys(neighbours))
    order = list(_operators.values())
    return sorted(found, key=lambda operator: order.index(operator) if operator in order else len(order))


def require_operator(item: object, function: str) -> "Operator":
    """Raises BuildError where what a function was given is no operator."""
    if not hasattr(item, "kernel_spec"):
        raise BuildError(
            f"{function} takes operators, or the path of a file that defines some, not {type(item).__name__}. Pass what"
            " @oneop.op made of your function."
        )
    return cast("Operator", item)


def _place(operator: "Operator") -> str:
    return operator.defined_in if Path(operator.defined_in).is_file() else _NOTEBOOK


def load_file(path: str | Path) -> list["Operator"]:
    """Imports a definition file and returns its operators. Raises DefinitionError where it defines none.

    Whatever the file itself raises comes through as it is.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise DefinitionError(f"{path}: there is no such file. Give the path of a Python file that defines operators.")
    known = defined_in(str(file))
    if known:
        return known
    spec = importlib.util.spec_from_file_location(f"oneop_file_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{path}: this is not a Python file. Give the path of a .py file that defines operators.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    finally:
        sys.path.remove(str(file.parent))
    found = defined_in(str(file))
    if not found:
        raise DefinitionError(f"{path}: the file defines no operator. Decorate a function with @oneop.op(...) in it.")
    return found
