"""Causes that lie in the machine or in Python: each is brought about for real, in a training, and is named."""

import gc
import itertools
import mmap
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import oneop.epochs
from support.trainings import Net, kinds, loader, step, train

PAGE = mmap.PAGESIZE
MB = 1 << 20

MADV_PAGEOUT = 21
"""Linux takes the pages of a mapping out of memory, as it does when memory is short. Python has no name for it."""


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def on_disk(folder: Path, size: int) -> Path:
    """A file whose pages are not dirty, so that they can be dropped from memory."""
    path = folder / "data"
    with path.open("wb") as file:
        file.write(random.Random(0).randbytes(size))
        file.flush()
        os.fsync(file.fileno())
    return path


@pytest.mark.skipif(not Path("/proc/vmstat").exists(), reason="only Linux counts what is taken out of memory")
def test_pages_are_taken_out_of_memory_and_needed_again(tmp_path: Path) -> None:
    """A table of features in a mapped file, of which the machine cannot keep anything: there is no swap in it."""
    path = on_disk(tmp_path, 48 * MB)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as table:
        table.madvise(mmap.MADV_RANDOM, 0, 8 * MB)  # each of these pages is a read, and a wait, of its own
        turns = itertools.cycle(range(0, len(table), 4 * MB))

        def look_up(net: Net, hidden: Tensor) -> Tensor:
            start = next(turns)
            return hidden + 0.0 * sum(table[at] for at in range(start, start + 4 * MB, PAGE))

        def take_out(epoch: int) -> None:
            if epoch:
                table.madvise(MADV_PAGEOUT)

        w = train(Net(look_up), loader(12), before_epoch=take_out)
    later = w.epochs[1:]
    if all(epoch.refaulted_bytes == 0 for epoch in later):
        pytest.skip("this kernel does not take out pages when asked to (before 5.4), or the folder is no disk")
    assert kinds(w) == ["memory"], later
    found = w.problems[0]
    assert found.summary == (
        "The machine runs out of memory: pages of mapped files are taken out of it and read again."
    )
    assert found.evidence[0].startswith("taken out of memory and read again by the machine in each later epoch: ")


def test_millions_of_objects_that_the_collector_looks_at() -> None:
    def records(net: Net, hidden: Tensor) -> Tensor:
        net.__dict__.setdefault("records", []).extend([number] for number in range(20_000))
        return hidden

    gc.freeze()  # what other tests left behind would make each collection slow, and rare
    gc.collect()
    model: Any = Net(records)
    w = train(model, loader(10), epochs=4, before_epoch=lambda epoch: model.__dict__.pop("records", None))
    assert kinds(w) == ["gc"]
    assert "collections over all objects in each: " in w.problems[0].evidence[1]


def test_a_collection_in_each_step() -> None:
    w = train(Net(), loader(3), epochs=3, after=lambda loss: gc.collect() and None)
    assert kinds(w) == ["gc"]
    assert "collections over all objects in each: 3, 3" in w.problems[0].evidence[1]


def test_a_collector_that_is_called_too_often() -> None:
    def pairs(net: Net, hidden: Tensor) -> Tensor:
        _ = [[number] for number in range(3000)]
        return hidden

    gc.set_threshold(5, 50, 1000)
    w = train(Net(pairs), loader(12), epochs=4)
    assert kinds(w) == ["gc"]
    assert w.problems[0].evidence[-1].startswith("collections of young objects in a step: ")
    gc.set_threshold(700, 10, 10)
    assert train(Net(pairs), loader(12), epochs=4).healthy


def test_a_list_that_is_searched_and_grows() -> None:
    """Nothing that is watched shows it: the epochs are slower, in the processor's time too."""
    history = [0.5] * 10_000

    def search(net: Net, hidden: Tensor) -> Tensor:
        for number in range(10):
            assert -1.0 - number not in history
        return hidden

    def grow(epoch: int) -> None:
        history.extend(history[: int(0.8 * len(history))])

    w = train(Net(search), loader(4), epochs=7, before_epoch=grow)
    assert kinds(w) == ["slower"], [(epoch.seconds, epoch.processor) for epoch in w.epochs]
    assert w.problems[0].summary == "Epochs become slower, most of all in forward; no known cause shows."
    assert "1.3 times from the first third to the last" in w.problems[0].evidence[0]


class Read(Dataset[tuple[Tensor, Tensor]]):
    """Each sample is read page by page: slow from a disk, quick from memory."""

    def __init__(self, file: int, samples: int) -> None:
        self._file = file
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        for start in range(index * MB, (index + 1) * MB, PAGE):
            os.pread(self._file, PAGE, start)
        return torch.zeros(8, 16), torch.zeros(8, 1)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="pages cannot be dropped from memory here")
def test_data_from_disk_in_the_first_epoch_and_from_memory_later(tmp_path: Path) -> None:
    file = os.open(on_disk(tmp_path, 12 * MB), os.O_RDONLY)

    def drop(epoch: int) -> None:
        if epoch == 0:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)

    try:
        w = train(Net(), DataLoader(Read(file, 12), batch_size=None), epochs=6, before_epoch=drop)
    finally:
        os.close(file)
    if not w.epochs[0].disk_bytes:
        pytest.skip(f"the folder for temporary files is on no disk that is counted: {w.epochs[0].disk_bytes}")
    (found,) = (item for item in w.diagnoses if item.kind == "disk")
    assert found.severity == "note"
    assert found.summary == "The first epoch read its data from disk, later epochs from memory (the page cache)."
    assert "from disk in epoch 1, 0 B of " in found.evidence[0]
    assert "disk" not in kinds(w)


def slowdown(operation: Callable[[Tensor], Tensor]) -> float:
    """How many times as long it takes on denormals: the quickest of each kind."""

    def quickest(value: float) -> float:
        values, times = torch.full((65536,), value), []
        for _ in range(9):
            begin = time.perf_counter()
            operation(values)
            times.append(time.perf_counter() - begin)
        return min(times)

    return quickest(1e-39) / quickest(1e-3)


def test_state_that_fades_out_into_denormals() -> None:
    """Features that are seen no more: Adam's averages of their gradients shrink, and end among denormals for good."""
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.8, 0.8))
    source = [(torch.randn(8, 16), torch.randn(8, 1)) for _ in range(120)]
    with oneop.epochs.watch(source, model, optimizer, overhead=1.0, show=False) as w:
        for epoch in range(4):
            for x, y in w.loader:
                if epoch or optimizer.state:
                    x[:, 8:] = 0.0
                step(model, optimizer, x, y)
    assert optimizer.state[model.first.weight]["exp_avg_sq"][:, 8:].max() < 1e-38
    found = [item for item in w.diagnoses if item.kind == "denormals"]
    assert [item.summary.partition(" are ")[0].partition(" ")[2] for item in found] == ["of the optimizer state"]
    cost = slowdown(torch.sqrt)  # what it is worth depends on the processor
    if cost > 3:
        assert found[0].severity == "problem"
        assert kinds(w) == ["denormals"]
    elif cost < 1.2 and slowdown(lambda x: x / 3.0) < 1.2:
        assert found[0].severity == "note"


def test_weights_that_decay_into_denormals() -> None:
    """Weights of features that are never there: weight decay alone moves them, down to denormals."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, weight_decay=12.0)
    source = loader(90)
    with oneop.epochs.watch(source, model, optimizer, overhead=1.0, show=False) as w:
        for _ in range(4):
            for x, y in source:
                x[:, :15] = 0.0
                step(model, optimizer, x, y)
    found = {item.summary.partition(" of the ")[2].partition(" are ")[0]: item for item in w.diagnoses}
    assert "parameters" in found, (w.diagnoses, model.first.weight)
    cost = max(slowdown(torch.exp), slowdown(lambda x: x / 3.0))
    if cost > 3:
        assert found["parameters"].severity == "problem"


def test_a_slow_compilation_in_the_first_epoch() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        time.sleep(1.5)
        return graph.forward

    w = train(torch.compile(Net(), backend=backend), loader(20), epochs=4)
    assert w.healthy, w.problems
    assert [item.kind for item in w.diagnoses] == ["compilation"]
    found = w.diagnoses[0]
    assert found.summary == "The first epoch compiled forward with torch.compile."
    assert found.evidence[1].startswith("1 compilation took ")
    assert found.places[0].file is not None
    assert Path(found.places[0].file).name == "trainings.py"


def test_a_first_step_that_warms_up() -> None:
    class Warms(Net):
        def forward(self, x: Tensor) -> Tensor:
            if not self.kept:
                self.kept.append(torch.zeros(()))
                time.sleep(1.0)  # a library that is set up
            return super().forward(x)

    model: nn.Module = Warms()
    w = train(model, loader(20), epochs=4)
    assert w.healthy, w.problems
    assert [item.kind for item in w.diagnoses] == ["warm-up"]
