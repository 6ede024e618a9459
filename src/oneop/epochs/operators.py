"""Time by operator: one step of an epoch is run under torch's profiler, if the budget allows it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import profiler

from oneop.epochs.records import OperatorTime
from oneop.epochs.replacing import replaced

_autograd: Any = torch.autograd
_profile: Any = profiler.profile

MOST = 24
"""So many operators are kept, those that took longest."""


class OperatorSampler:
    """Profiles from ``start`` to ``stop``. Gives way to a profiler of the user's, for good.

    torch's older profiler: it costs little, says nothing on the terminal, and sees oneop's operators like ATen's.
    """

    def __init__(self) -> None:
        self.is_running = False
        self._gives_way = False

    @property
    def is_possible(self) -> bool:
        return not (self.is_running or self._gives_way or _autograd._profiler_enabled())

    def start(self) -> None:
        _autograd._enable_profiler_legacy(_configuration())
        self.is_running = True

    def stop(self) -> tuple[OperatorTime, ...]:
        """The operators since ``start``, the one that took longest first; none if a profiler of the user's began."""
        if not self.is_running:
            return ()
        self.is_running = False
        return own_times(_autograd._disable_profiler_legacy())

    @contextlib.contextmanager
    def giving_way(self) -> Iterator[None]:
        """Watches for profilers that are made: two cannot run at once, and the second to start would raise."""
        original = _profile.__init__

        def made(itself: Any, *args: Any, **kwargs: Any) -> None:
            self._gives_way = True
            self.stop()
            original(itself, *args, **kwargs)

        with replaced(_profile, "__init__", made):
            try:
                yield
            finally:
                self.stop()


def own_times(threads: list[list[Any]]) -> tuple[OperatorTime, ...]:
    """The time in each operator that is in no other: from the events of the profiler, thread by thread."""
    calls: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for events in threads:
        stack: list[list[Any]] = []
        for event in events:
            kind = event.kind()
            if kind == "push":
                stack.append([event, 0.0])
            elif kind == "pop" and stack:
                begun, inside = stack.pop()
                took = begun.cpu_elapsed_us(event)
                if stack:
                    stack[-1][1] += took
                name = begun.name()
                if _is_operator(name):
                    calls[name] = calls.get(name, 0) + 1
                    seconds[name] = seconds.get(name, 0.0) + (took - inside) / 1e6
    longest = sorted(seconds, key=lambda name: -seconds[name])[:MOST]
    return tuple(OperatorTime(name, calls[name], seconds[name]) for name in longest)


def _is_operator(name: str) -> bool:
    namespace, _, base = name.partition("::")
    return base.isidentifier() and namespace.isidentifier() and namespace != "torch"


def _configuration() -> Any:
    from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

    return ProfilerConfig(ProfilerState.CPU, False, False, False, False, False, _ExperimentalConfig())
