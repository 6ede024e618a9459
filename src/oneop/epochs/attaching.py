"""Puts a recorder's ears into a training loop, and takes them out again: loader, backward, model, optimizer."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from oneop.epochs.hooks import OWN
from oneop.epochs.recorder import Recorder
from oneop.epochs.replacing import replaced

_autograd: Any = torch.autograd
_is_compiling = torch.compiler.is_compiling

_IS_MADE_IN_PYTHON = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: the attributes of the class can be set."""

LISTENS = "oneop_listens"
"""An attribute of an ``__iter__`` that a watch has put in place."""


class Listening:
    """An iterator over batches that tells a recorder when a batch is asked for and when it is there."""

    def __init__(self, recorder: Recorder, begin: Callable[[], Iterator[Any]]) -> None:
        self._recorder = recorder
        self._number = 0 if recorder.is_by_hand else recorder.epoch_begins()
        self._asked: float | None = recorder.tools.now()
        recorder.waits()
        try:
            self._batches = begin()
        finally:
            recorder.loading_ends()

    def __iter__(self) -> "Listening":
        return self

    def __next__(self) -> Any:
        recorder = self._recorder
        passes = recorder.passes_over()
        if not passes:
            recorder.waits()
        try:
            batch = next(self._batches)
        except StopIteration:
            recorder.loading_ends()
            self._finish(complete=True)
            raise
        except BaseException:
            recorder.loading_ends()
            raise
        if passes:
            recorder.passed_over()
            return batch
        recorder.delivered(0.0 if self._asked is None else recorder.tools.now() - self._asked)
        self._asked = None
        return batch

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_batches"], name)

    def __del__(self) -> None:
        if "_recorder" in self.__dict__:
            self._finish(complete=False)  # the loop was left early

    def _finish(self, complete: bool) -> None:
        if self._number:
            self._recorder.epoch_ends(complete, self._number)
            self._number = 0


class ListeningLoader:
    """A loader that can be iterated once an epoch, in place of one that cannot be listened to as it is."""

    def __init__(self, recorder: Recorder, loader: Any) -> None:
        self._recorder = recorder
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        loader = self._loader
        made = getattr(type(loader), "__iter__", None)
        # A class that is listened to already begins the epoch itself.
        return iter(loader) if hasattr(made, LISTENS) else Listening(self._recorder, lambda: iter(loader))

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)


@contextlib.contextmanager
def listening_to_loader(recorder: Recorder, loader: Any | None, kind: type) -> Iterator[bool]:
    """Iterating ``loader`` (any loader of ``kind`` if None) tells the recorder. Gives whether that is possible.

    ``__iter__`` is looked up on the class, so that it is replaced there; other objects of the class are let through.
    """
    original = getattr(kind, "__iter__", None)
    if original is None or not kind.__flags__ & _IS_MADE_IN_PYTHON:  # list, tuple and other classes written in C
        yield False
        return

    @functools.wraps(original)
    def __iter__(itself: Any) -> Iterator[Any]:  # noqa: N807 - it takes the place of one
        if loader is None or itself is loader:
            return Listening(recorder, lambda: original(itself))
        return original(itself)  # type: ignore[no-any-return]

    setattr(__iter__, LISTENS, True)
    with replaced(kind, "__iter__", __iter__):
        yield True


@contextlib.contextmanager
def listening_to_backward(recorder: Recorder) -> Iterator[None]:
    """``Tensor.backward``, ``torch.autograd.backward`` and ``grad`` all run the engine through one function.

    It is replaced only while the recorder wants to know: a call more is a large part of what an unwatched step costs.
    """
    original = _autograd._engine_run_backward

    @functools.wraps(original)
    def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            return original(outputs, *args, **kwargs)
        told = recorder.backward_begins(outputs, bool(len(args) > 1 and args[1]))
        try:
            return original(outputs, *args, **kwargs)
        finally:
            if told:
                recorder.backward_ends()

    def listen(wanted: bool) -> None:
        if _autograd._engine_run_backward in (run, original):  # another's, put in meanwhile, stays
            _autograd._engine_run_backward = run if wanted else original

    with replaced(_autograd, "_engine_run_backward", run):
        recorder.ears.append(listen)
        try:
            yield
        finally:
            recorder.ears.remove(listen)


@contextlib.contextmanager
def listening_to_model(recorder: Recorder, model: nn.Module) -> Iterator[None]:
    """Not where ``Module.compile()`` would trace the hooks: then forward is the time from the batch to backward.

    The hooks are there while the recorder wants to know; all the time once something was compiled, whose guards they
    may be part of.
    """
    if getattr(model, "_compiled_call_impl", None) is not None:
        yield
        return

    def begins(*_: Any) -> None:
        if not _is_compiling() and recorder.listens:
            recorder.forward_begins()

    def ends(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if not _is_compiling() and recorder.listens:
            recorder.forward_ends(output)

    _mark(begins, ends)
    handles: list[Any] = []

    def listen(wanted: bool) -> None:
        if not handles and wanted:
            handles.append(model.register_forward_pre_hook(begins, prepend=True))
            handles.append(model.register_forward_hook(ends, always_call=True))
        elif handles and not wanted:
            while handles:
                handles.pop().remove()

    def listen_unless_compiled(wanted: bool) -> None:
        listen(wanted or recorder.compilations.has_compiled)

    listen(True)
    recorder.ears.append(listen_unless_compiled)
    try:
        yield
    finally:
        recorder.ears.remove(listen_unless_compiled)
        listen(False)


@contextlib.contextmanager
def listening_to_optimizers(recorder: Recorder, optimizers: Iterable[Optimizer]) -> Iterator[None]:
    def begins(*_: Any) -> None:
        if not _is_compiling() and recorder.listens:
            recorder.optimizer_begins()

    def ends(*_: Any) -> None:
        if not _is_compiling():
            recorder.optimizer_ends()

    _mark(begins, ends)
    handles = []
    for optimizer in optimizers:
        handles += [optimizer.register_step_pre_hook(begins), optimizer.register_step_post_hook(ends)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _mark(*hooks: Callable[..., None]) -> None:
    """They are not of the user's, and not counted."""
    for hook in hooks:
        setattr(hook, OWN, True)
