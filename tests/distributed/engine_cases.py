"""DistributedDataParallel and FSDP2: the losses of two processes, each with half of a batch, are those of one."""

from collections.abc import Callable

import operators
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

ROWS, STEPS = 8, 6


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, 6, generator=generator, dtype=torch.float64)
    return x, torch.randn(ROWS, 2, generator=generator, dtype=torch.float64)


def losses(model: nn.Module, rows: slice) -> list[float]:
    """Training losses; a mean over rows, so that the mean of two halves' gradients is the gradient."""
    x, wanted = (value[rows] for value in data())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (model(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if rows != slice(None):
            dist.all_reduce(mean)
            mean /= 2
        found.append(mean.item())
    return found


def same_as_one_process(rank: int, wrap: Callable[[nn.Module], nn.Module]) -> None:
    whole = losses(operators.network(), slice(None))
    assert whole[-1] < 0.9 * whole[0], whole  # it learns, so that six equal losses say something
    split = losses(wrap(operators.network()), slice(rank * ROWS // 2, (rank + 1) * ROWS // 2))
    # float64 sums in another order: a few hundred roundings of 1e-16, over six steps.
    torch.testing.assert_close(split, whole, rtol=1e-12, atol=0)
    assert "distributed::scaled_linear_grad" in native()
    assert "distributed::gate" in native()


def native() -> set[str]:
    from oneop.targets.pytorch import native

    return set(native.attached)


def case_ddp(rank: int) -> None:
    same_as_one_process(rank, DistributedDataParallel)


def case_ddp_without_averaging_is_seen(rank: int) -> None:
    """The comparison notices processes that do not talk to each other."""
    try:
        same_as_one_process(rank, lambda model: model)
    except AssertionError:
        return
    raise AssertionError("half a batch without DistributedDataParallel gave the losses of the whole")


def case_fsdp2(rank: int) -> None:
    def wrap(model: nn.Module) -> nn.Module:
        mesh = dist.init_device_mesh("cpu", (2,))
        for layer in model:
            if isinstance(layer, operators.Layer):
                fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    same_as_one_process(rank, wrap)
