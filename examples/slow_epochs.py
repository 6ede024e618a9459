"""A training whose epochs are slow for three reasons, and `oneop.epochs`, which names them: python slow_epochs.py"""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import oneop.epochs


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, 128)
        self.head = nn.Linear(128, 10)
        self.activity: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        # 1: a hook is registered at every call, and none is removed.
        self.head.register_forward_hook(lambda module, inputs, output: self.activity.append(0.0))
        return self.head(Exp.apply(self.body(x).tanh()))


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.y = y  # 2: an output on ctx is a reference cycle; ctx.save_for_backward(y) is none.
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad * ctx.y


def train(epochs: int = 5, samples: int = 1600) -> oneop.epochs.Watch:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(samples, 64), torch.randint(10, (samples,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with oneop.epochs.watch(loader, model, optimizer, overhead=0.1) as w:
        for _epoch in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss)  # 3: each loss keeps the graph of its step; loss.item() keeps none.
    return w


if __name__ == "__main__":
    train()
