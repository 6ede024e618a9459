"""`oneop.epochs.watch`: what a training script holds while its epochs are watched."""

import contextlib
import json as json_format
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from torch import nn
from torch.optim import Optimizer

from oneop.epochs import checks, report
from oneop.epochs.attaching import (
    Listening,
    ListeningLoader,
    listening_to_backward,
    listening_to_loader,
    listening_to_model,
    listening_to_optimizers,
)
from oneop.epochs.denormals import penalty
from oneop.epochs.diagnosis import Case, diagnose, keeps_graphs, verdict
from oneop.epochs.errors import WatchError, WatchWarning
from oneop.epochs.holders import Holder, holders_of_graphs
from oneop.epochs.hooks import newest_hook
from oneop.epochs.recorder import Recorder
from oneop.epochs.records import Diagnosis, Epoch, Place, plain
from oneop.report import files

_active: "list[tuple[Watch, str]]" = []
"""The watch that is under way, and where it began: there is one at a time."""


def watch(
    loader: Any,
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    overhead: float = 0.004,
    show: bool = True,
    json: str | Path | None = None,
    html: str | Path | None = None,
    png: str | Path | None = None,
) -> "Watch":
    """Watches a training loop and says why its epochs are slow, or become slower.

    The loop stays as it is; each iteration over ``loader`` is an epoch::

        with oneop.epochs.watch(loader, model, optimizer) as w:
            for epoch in range(10):
                for x, y in loader:
                    ...

    A loader whose class is written in C (a list of batches) cannot be listened to: loop over ``w.loader`` then. Without
    a loader pass None, and loop over ``w.batches(...)`` or call ``w.epoch_begins()`` at the start of each epoch.

    Args:
        loader: a DataLoader, or anything else that can be iterated once an epoch; or None.
        model: the module that is trained. Compiled, wrapped by DistributedDataParallel, or plain.
        optimizer: the optimizer, or a list of them.
        overhead: the share of the time watched, from 0 to 1, that samples may take (times of operators, counts of
            tensors, denormals). What an epoch cannot pay for is left out of its record; 1 takes every sample.
        show: print the table and the diagnosis at the end.
        json, html, png: files for the record, the page and the plot, written at the end.

    At the end of the block ``w.epochs`` has the records, ``w.diagnoses`` the causes and ``w.verdict`` one sentence.
    If the block ends with an exception, what was recorded is shown and the exception passes through. Raises WatchError
    where the loop cannot be watched, and OneopError where a file could not be written.

    >>> import torch, oneop.epochs
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> loader = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=16)
    >>> with oneop.epochs.watch(loader, model, optimizer, show=False) as w:
    ...     for epoch in range(3):
    ...         for x in loader:
    ...             optimizer.zero_grad()
    ...             model(x).square().mean().backward()
    ...             optimizer.step()
    >>> [epoch.steps for epoch in w.epochs], w.healthy
    ([4, 4, 4], True)
    """
    outputs = [Path(path) if path is not None else None for path in (json, html, png)]
    checks.check_loader(loader)
    checks.check_model(model)
    optimizers = checks.checked_optimizers(optimizer, model)
    checks.check_share(overhead)
    checks.check_outputs(list(zip(outputs, ("the record", "the page", "the plot"), strict=True)))
    return Watch(Recorder(model, optimizers, overhead), loader, show, outputs)


class Watch:
    """A training loop that is watched, from ``with`` to its end. Made by ``oneop.epochs.watch``."""

    def __init__(
        self, recorder: Recorder, loader: Any, show: bool, outputs: Sequence[Path | None] = (None,) * 3
    ) -> None:
        self._recorder = recorder
        self._source = loader
        self._show = show
        self._json, self._html, self._png = outputs
        self._listens = False
        self._stack = contextlib.ExitStack()
        self._holders: tuple[Holder, ...] = ()
        self.diagnoses: tuple[Diagnosis, ...] = ()
        self.loader: Any = loader if loader is None else ListeningLoader(recorder, loader)

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The epochs that have ended, oldest first."""
        return tuple(self._recorder.epochs)

    @property
    def problems(self) -> tuple[Diagnosis, ...]:
        """The diagnoses that cost time or memory in every epoch; the others explain, and need no change."""
        return tuple(diagnosis for diagnosis in self.diagnoses if diagnosis.severity == "problem")

    @property
    def healthy(self) -> bool:
        """Whether two epochs or more were seen, and no problem."""
        return len(self.epochs) > 1 and not self.problems

    @property
    def verdict(self) -> str:
        return verdict(self.epochs, self.diagnoses)

    def __enter__(self) -> Self:
        self.begin(self._attach, _place(sys._getframe(1)))
        return self

    def begin(self, attach: Callable[[contextlib.ExitStack], None], place: str) -> None:
        """Begins the watch; ``attach`` puts what has to be undone at its end onto the stack that it is given."""
        if _active:
            raise WatchError(
                f"oneop.epochs.watch: a watch is under way already, begun in {_active[0][1]}. Leave that block first;"
                " for several optimizers pass a list to one watch."
            )
        if self._recorder.epochs:
            raise WatchError("oneop.epochs.watch: this watch has ended. Call watch(...) again for another run.")
        with contextlib.ExitStack() as stack:
            attach(stack)
            attach_to_process(self._recorder, stack)
            _active.append((self, place))
            stack.callback(_active.clear)
            self._recorder.prepare()
            self._recorder.on_epoch = self._look_for_holders
            self._stack = stack.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(sys._getframe(1), interrupted=error is not None)

    def finish(self, frame: FrameType | None, interrupted: bool = False) -> None:
        """Ends the watch: the last record, the diagnosis, what is to be shown and written."""
        recorder = self._recorder
        with self._stack:
            recorder.epoch_ends(complete=not interrupted and recorder.is_by_hand)
            if recorder.epochs:
                recorder.count_objects()
                self.diagnoses = diagnose(self._case(frame))
        if not recorder.epochs:
            if not interrupted:
                warnings.warn(self._nothing(), WatchWarning, stacklevel=3)
            return
        if self._show:
            self.show()
        for path, save in ((self._json, self.save_json), (self._html, self.save_html), (self._png, self.save_png)):
            if path is not None:
                save(path)

    def epoch_begins(self) -> None:
        """For plain loops: an epoch begins here, and the one before ends. Loaders inside only count as loading."""
        self._recorder.epoch_begins(by_hand=True)

    def epoch_ends(self) -> None:
        """For plain loops: the epoch ends here, if what follows before the next is not part of it."""
        self._recorder.epoch_ends(complete=True)

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """For plain loops: ``with w.loading(): ...`` counts as data loading."""
        self._recorder.loading_begins()
        try:
            yield
        finally:
            self._recorder.loading_ends()

    def batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """For plain loops: iterates any iterable, an iterator too, as the batches of one epoch."""
        return Listening(self._recorder, lambda: iter(batches))

    def show(self) -> None:
        """Prints the table of epochs, that of operators, and the diagnosis."""
        report.show(self.epochs, self.diagnoses, self.verdict)

    def as_plain(self) -> dict[str, Any]:
        """Epochs, verdict and diagnoses as dictionaries, lists, numbers and texts: what the JSON file has."""
        return plain(self.epochs, self.diagnoses, self.verdict)

    def save_json(self, path: str | Path) -> None:
        """Writes the record as JSON."""
        files.write(Path(path), json_format.dumps(self.as_plain(), indent=1).encode(), "the record")

    def save_html(self, path: str | Path) -> None:
        """Writes one self-contained page: tables, plots and the diagnosis."""
        report.write_html(Path(path), self.epochs, self.diagnoses, self.verdict)

    def save_png(self, path: str | Path) -> None:
        """Writes the plots: time by phase, and what stays alive, by epoch."""
        report.write_png(Path(path), self.epochs)

    def _attach(self, stack: contextlib.ExitStack) -> None:
        recorder = self._recorder
        assert recorder.model is not None
        self._listens = self._source is not None and stack.enter_context(
            listening_to_loader(recorder, self._source, type(self._source))
        )
        stack.enter_context(listening_to_model(recorder, recorder.model))
        stack.enter_context(listening_to_optimizers(recorder, recorder.optimizers))

    def _case(self, frame: FrameType | None) -> Case:
        recorder, model = self._recorder, self._recorder.model
        return Case(
            epochs=self.epochs,
            workers=getattr(self._source, "num_workers", 0),
            persistent_workers=bool(getattr(self._source, "persistent_workers", False)),
            holders=lambda: (
                self._holders or (holders_of_graphs(recorder.graphs, model, frame) if model is not None else ())
            ),
            grown_hook=lambda: _grown_hook(recorder),
            penalty=penalty,
        )

    def _look_for_holders(self) -> None:
        """At the end of an epoch, once graphs are seen to be kept: the function that holds them may return early."""
        model = self._recorder.model
        if model is not None and not self._holders and keeps_graphs(self.epochs):
            self._holders = holders_of_graphs(self._recorder.graphs, model, sys._getframe())

    def _nothing(self) -> str:
        begin = "oneop.epochs.watch: no epoch was recorded. "
        if self._source is None:
            return begin + "Loop over w.batches(...), or call w.epoch_begins() at the start of each epoch."
        kind = type(self._source).__name__
        if self._listens:
            return (
                begin + f"The {kind} that was passed was not iterated inside the block. Pass the object that the loop"
                " iterates,"
                " or loop over w.loader."
            )
        return begin + f"Iterating a {kind} cannot be listened to. Loop over w.loader, which gives the same batches."


def attach_to_process(recorder: Recorder, stack: contextlib.ExitStack) -> None:
    """The parts that belong to no loader, model or optimizer: backward, compilations, the garbage collector."""
    stack.callback(recorder.graphs.release)
    stack.enter_context(listening_to_backward(recorder))
    stack.enter_context(recorder.operators.giving_way())
    recorder.compilations.install()
    stack.callback(recorder.compilations.remove)
    recorder.collector.install()
    stack.callback(recorder.collector.remove)


def _grown_hook(recorder: Recorder) -> tuple[str, Place | None]:
    if recorder.model is None:
        return "", None
    first, last = recorder.first_hooks, recorder.last_hooks
    grown = {key: count - first.get(key, 0) for key, count in last.items()}
    key = max(grown, key=lambda key: grown[key])
    kind, name = key
    return f"`{kind}` of `{name or 'the model itself'}`", newest_hook(recorder.model, recorder.optimizers, key)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"
