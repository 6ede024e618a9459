"""Does something once a module has been imported, without importing it: slow modules, which few programs need."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Calls ``action`` at the end of the import of the module ``name``: now, if it is imported."""
    if is_imported(name):
        action()
        return
    waiting = [finder for finder in sys.meta_path if isinstance(finder, _Waiting) and finder.name == name]
    finder = waiting[0] if waiting else _Waiting(name)
    finder.actions.append(action)
    if not waiting:
        sys.meta_path.insert(0, finder)


def is_imported(name: str) -> bool:
    """Whether a module is there, from its first line to its last."""
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


class _Waiting(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets the import of one module take place, and then does what waits for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.actions: list[Callable[[], None]] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            loader, run = spec.loader, spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                del loader.exec_module  # the instance's: the class has its own again
                sys.meta_path.remove(self)
                for action in self.actions:
                    action()

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
