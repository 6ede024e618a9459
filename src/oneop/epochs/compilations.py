"""What torch.compile compiles, how long that takes and why it compiles again; and which oneop kernels get loaded."""

import sys
from collections.abc import Callable
from typing import Any

from oneop.epochs.records import Compilation
from oneop.importing import is_imported, when_imported

_CALLBACKS = "torch._dynamo.callback"
_METRICS = "torch._dynamo.utils"
_NATIVE = "oneop.targets.pytorch.native"


class Compilations:
    """Counts compilations from ``install`` to ``remove``; ``take`` gives those since it was last called.

    ``has_compiled``: something was, now or before; ``on_first`` is called when that begins. torch._dynamo is not
    imported for it: a program that does not compile has nothing to count.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.has_compiled = False
        self.on_first: Callable[[], None] = lambda: None
        self._installed = False
        self._depth = 0
        self._since = 0.0
        self._seconds = 0.0
        self._count = 0
        self._known: set[int] = set()
        self._kept: list[Any] = []
        self._built: frozenset[str] = frozenset()

    def install(self) -> None:
        self._installed = True
        self._built = _built_operators()
        self.has_compiled = bool(self._fresh_metrics())
        when_imported(_CALLBACKS, self.attend)

    def remove(self) -> None:
        self._installed = False
        if is_imported(_CALLBACKS):
            handler = sys.modules[_CALLBACKS].callback_handler
            if self._begins in handler.start_callbacks:
                handler.remove_start_callback(self._begins)
                handler.remove_end_callback(self._ends)

    def attend(self) -> None:
        """Registers for compilations; ``torch._dynamo.reset()`` forgets who has, so this is called again."""
        if not self._installed or not is_imported(_CALLBACKS):
            return
        handler = sys.modules[_CALLBACKS].callback_handler
        if self._begins not in handler.start_callbacks:
            handler.register_start_callback(self._begins)
            handler.register_end_callback(self._ends)

    def take(self) -> tuple[tuple[Compilation, ...], float, tuple[str, ...]]:
        """Compilations, the seconds that they took, and the oneop operators whose kernels were loaded."""
        found = tuple(_compilation(metrics) for metrics in self._fresh_metrics())
        seconds, count = self._seconds, self._count
        self._seconds, self._count = 0.0, 0
        built = _built_operators()
        fresh, self._built = tuple(sorted(built - self._built)), built
        if len(found) < count:  # torch keeps the metrics of the last few only
            found += (Compilation("", "", 0, 0.0),) * (count - len(found))
        return found, seconds, fresh

    def _begins(self, *_: Any) -> None:
        if self._depth == 0:
            self._since = self._now()
        self._depth += 1
        if not self.has_compiled:
            self.has_compiled = True
            self.on_first()

    def _ends(self, *_: Any) -> None:
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0:
            self._seconds += self._now() - self._since
            self._count += 1

    def _fresh_metrics(self) -> list[Any]:
        """Metrics of compilations since the last call. They are kept, so that no two have one id."""
        if not is_imported(_METRICS):
            return []
        kept = list(sys.modules[_METRICS].get_compilation_metrics())
        fresh = [metrics for metrics in kept if id(metrics) not in self._known]
        self._known, self._kept = {id(metrics) for metrics in kept}, kept
        return [metrics for metrics in fresh if getattr(metrics, "co_name", None)]


def _compilation(metrics: Any) -> Compilation:
    reason = str(getattr(metrics, "recompile_reason", None) or "").partition("\n")[0]
    guard = reason.partition("#")[0]  # behind it stand the source line and advice
    return Compilation(
        function=str(metrics.co_name),
        file=str(metrics.co_filename or ""),
        line=int(metrics.co_firstlineno or 0),
        seconds=float(getattr(metrics, "duration_us", None) or 0) / 1e6,
        reason=" ".join((guard.partition(": ")[2] or guard).split()),
    )


def _built_operators() -> frozenset[str]:
    native = sys.modules.get(_NATIVE)
    return frozenset(native.attached) if native is not None else frozenset()
