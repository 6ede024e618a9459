"""Watches a training loop: where the time of each epoch goes, and why later epochs are slow."""

from oneop.epochs.errors import WatchError, WatchWarning
from oneop.epochs.records import (
    Compilation,
    ContextTensor,
    Denormals,
    Diagnosis,
    Epoch,
    OperatorTime,
    Place,
)
from oneop.epochs.watching import Watch, watch

__all__ = [
    "Compilation",
    "ContextTensor",
    "Denormals",
    "Diagnosis",
    "Epoch",
    "OperatorTime",
    "Place",
    "Watch",
    "WatchError",
    "WatchWarning",
    "watch",
]
