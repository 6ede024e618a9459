"""Small trainings to be watched."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import oneop.epochs

Step = Callable[[nn.Module, Tensor, Tensor], Tensor]


class Net(nn.Module):
    """Two layers; ``between`` is called with what lies between them."""

    def __init__(self, between: Callable[["Net", Tensor], Tensor] | None = None, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Linear(16, width)
        self.second = nn.Linear(width, 1)
        self.between = between
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        if self.between is not None:
            hidden = self.between(self, hidden)
        return self.second(hidden)


def loader(steps: int = 12, **options: Any) -> DataLoader[tuple[Tensor, ...]]:
    torch.manual_seed(0)
    return DataLoader(TensorDataset(torch.randn(steps * 8, 16), torch.randn(steps * 8, 1)), batch_size=8, **options)


def batches(steps: int = 12) -> list[tuple[Tensor, ...]]:
    return [(torch.randn(8, 16), torch.randn(8, 1)) for _ in range(steps)]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def train(
    model: nn.Module,
    source: Any,
    *,
    epochs: int = 4,
    after: Callable[[Tensor], None] = lambda loss: None,
    before_epoch: Callable[[int], None] = lambda epoch: None,
    optimizer: torch.optim.Optimizer | None = None,
    overhead: float = 1.0,
    **options: Any,
) -> oneop.epochs.Watch:
    """Trains and watches; with all samples taken, whatever they cost, unless ``overhead`` says otherwise."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-3)
    with oneop.epochs.watch(source, model, optimizer, overhead=overhead, show=False, **options) as w:
        for epoch in range(epochs):
            before_epoch(epoch)
            for x, y in source:
                after(step(model, optimizer, x, y))
    return w


def kinds(w: oneop.epochs.Watch) -> list[str]:
    return [diagnosis.kind for diagnosis in w.problems]


def one_thread() -> Iterator[None]:
    """Body of a fixture: a busy machine makes threads that wait for each other very slow."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
