"""Watches a training script from outside: it finds the loader, the model and the optimizer by what they do."""

import builtins
import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from oneop.epochs.attaching import listening_to_loader, listening_to_model, listening_to_optimizers
from oneop.epochs.recorder import Recorder
from oneop.epochs.watching import Watch


def watch_script(path: Path, arguments: Sequence[str], overhead: float, outputs: Sequence[Path | None]) -> Watch:
    """Runs a script as ``python path arguments`` would, and watches it. What it raises passes through.

    Every DataLoader is listened to; iterations in which nothing is trained are no epochs. The model
    and the optimizer are those of the first ``optimizer.step()``.
    """
    given, path = path, path.resolve()
    recorder = Recorder(None, [], overhead, only_training=True)
    watch = Watch(recorder, None, True, outputs)
    with contextlib.ExitStack() as stack:
        watch.begin(_Discovery(recorder, stack).attach, f"oneop epochs {path}")
        module = stack.enter_context(_as_main(path, [str(given), *arguments]))
        try:
            exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
        except BaseException:
            watch.finish(None, interrupted=True)
            raise
        watch.finish(None)
    return watch


@contextlib.contextmanager
def _as_main(path: Path, argv: Sequence[str]) -> Iterator[ModuleType]:
    """The module that a script runs in: ``__main__``, as long as the block lasts."""
    module = ModuleType("__main__")
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = builtins
    own, folders, main = sys.argv[:], sys.path[:], sys.modules["__main__"]
    sys.argv[:] = argv
    sys.path.insert(0, str(path.parent))
    sys.modules["__main__"] = module
    try:
        yield module
    finally:
        sys.modules["__main__"] = main
        sys.argv[:], sys.path[:] = own, folders


class _Discovery:
    """Waits for the first step of an optimizer, and then listens to it and to its model."""

    def __init__(self, recorder: Recorder, stack: contextlib.ExitStack) -> None:
        self._recorder = recorder
        self._stack = stack

    def attach(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(listening_to_loader(self._recorder, None, DataLoader))
        stack.callback(register_optimizer_step_pre_hook(self._stepped).remove)

    def _stepped(self, optimizer: Optimizer, *_: Any) -> None:
        recorder = self._recorder
        if torch.compiler.is_compiling() or optimizer in recorder.optimizers:
            return
        recorder.optimizers.append(optimizer)
        self._stack.enter_context(listening_to_optimizers(recorder, [optimizer]))
        if recorder.model is None and (model := model_of(optimizer)) is not None:
            recorder.model = model
            self._stack.enter_context(listening_to_model(recorder, model))


def model_of(optimizer: Optimizer) -> nn.Module | None:
    """The module that has most of an optimizer's parameters and is part of no other that has as many."""
    wanted = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    modules = [item for item in gc.get_objects() if type(item) is not type and nn.Module in type(item).__mro__]
    counts = {id(module): sum(id(each) in wanted for each in module.parameters()) for module in modules}
    most = max(counts.values(), default=0)
    if not most:
        return None
    best = [module for module in modules if counts[id(module)] == most]
    inner = {id(part) for module in best for part in module.modules() if part is not module}
    return next((module for module in best if id(module) not in inner), None)
