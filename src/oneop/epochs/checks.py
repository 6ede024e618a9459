"""Whether a training loop can be watched: each refusal says what to pass instead."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from oneop.epochs.errors import WatchError
from oneop.report import files, plots


def checked_optimizers(optimizer: Any, model: nn.Module) -> list[Optimizer]:
    optimizers = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    if not optimizers:
        raise WatchError(
            "oneop.epochs.watch: the list of optimizers is empty. Pass the optimizer whose step() you call."
        )
    own = {id(parameter) for parameter in model.parameters()}
    for each in optimizers:
        if not isinstance(each, Optimizer):
            raise WatchError(
                f"oneop.epochs.watch: the optimizer is a {_kind(each)}, which is no torch.optim.Optimizer. The order is"
                " watch(loader, model, optimizer); a scheduler or a wrapper has the optimizer as an attribute, pass"
                " that."
            )
        if not any(id(parameter) in own for group in each.param_groups for parameter in group["params"]):
            raise WatchError(
                f"oneop.epochs.watch: the {_kind(each)} holds no parameter of the {_kind(model)}: it is the optimizer"
                " of another model, or of this one before its parameters were replaced (by .to(device), say). Make it"
                " from this model's parameters()."
            )
    return optimizers


def check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise WatchError(
            f"oneop.epochs.watch: the model is a {_kind(model)}, which is no torch.nn.Module. The order is"
            " watch(loader, model, optimizer)."
        )
    if next(model.parameters(), None) is None:
        raise WatchError(
            f"oneop.epochs.watch: the {_kind(model)} has no parameters, so there is nothing to train. Pass the module"
            " whose parameters the optimizer changes."
        )


def check_loader(loader: Any) -> None:
    if loader is None:
        return
    if isinstance(loader, Iterator):
        raise WatchError(
            f"oneop.epochs.watch: the loader is an iterator (a {_kind(loader)}), which is empty after one epoch. Pass"
            " what it was made from, a DataLoader or a list of batches; or pass None and loop over"
            " w.batches(iterator), with a new iterator in each epoch."
        )
    if not (hasattr(type(loader), "__iter__") or hasattr(type(loader), "__getitem__")):
        raise WatchError(
            f"oneop.epochs.watch: the loader is a {_kind(loader)}, which cannot be iterated. The order is watch(loader,"
            " model, optimizer); for a loop without a loader pass None, and call w.epoch_begins() in it."
        )


def check_share(overhead: float) -> None:
    if not 0 <= overhead <= 1:
        raise WatchError(
            f"oneop.epochs.watch: overhead={overhead!r} is a share of the time watched, from 0 to 1. 0.004 is"
            " four thousandths."
        )


def check_outputs(outputs: Sequence[tuple[Path | None, str]]) -> None:
    """Before the training whose result is to be written, not after it."""
    for path, what in outputs:
        if path is not None:
            files.require_writable(path, what)
            if what != "the record":
                plots.require_matplotlib()


def _kind(value: Any) -> str:
    return type(value).__name__
