"""Each cause, in a training that really has it, is named, with the line that does it. All but the machine's own."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oneop.epochs
from oneop.epochs import Diagnosis
from support.trainings import Net, batches, kinds, loader, step, train

HERE = Path(__file__)


def only(w: oneop.epochs.Watch, kind: str) -> Diagnosis:
    """The diagnosis of this kind; there is no other problem."""
    assert kinds(w) == [kind], w.diagnoses
    return w.problems[0]


def line_of(place: oneop.epochs.Place) -> str:
    """The line that the place leads to, read from the file."""
    assert place.file is not None
    assert place.line is not None
    return Path(place.file).read_text().splitlines()[place.line - 1].strip()


def test_a_list_of_losses() -> None:
    losses = []
    found = only(train(Net(), loader(), after=lambda loss: losses.append(loss)), "graph")
    assert found.summary.startswith(
        "Autograd graphs are kept alive by the variable `losses` of test_a_list_of_losses()"
    )
    assert "losses.append(loss)" in line_of(found.places[0])
    assert found.places[0].file == str(HERE)
    assert "12, 24, 36, 48, of 12, 12, 12, 12 watched steps" in found.evidence[0]
    assert "and they add up" in found.evidence[0]
    assert not any(loss.grad_fn.metadata for loss in losses if loss.grad_fn is not None)  # nothing of ours is left


def test_a_running_value_that_is_not_detached() -> None:
    model, source = Net(), loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    total: Any = 0
    with oneop.epochs.watch(source, model, optimizer, overhead=1.0, show=False) as w:
        for _ in range(3):
            for x, y in source:
                total = total + step(model, optimizer, x, y)
    found = only(w, "graph")
    assert "`total` of test_a_running_value_that_is_not_detached(), an undetached value" in found.summary
    assert line_of(found.places[0]) == "total = total + step(model, optimizer, x, y)"


def test_a_running_value_of_each_epoch() -> None:
    model, source = Net(), loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with oneop.epochs.watch(source, model, optimizer, overhead=1.0, show=False) as w:
        for _ in range(3):
            running: Any = 0.0
            for x, y in source:
                running += step(model, optimizer, x, y)
    found = only(w, "graph")
    assert line_of(found.places[0]) == "running += step(model, optimizer, x, y)"
    assert "and they are freed when the next epoch begins or later" in found.evidence[0]


def test_the_function_that_holds_has_returned() -> None:
    model, source = Net(), loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def run() -> None:
        history = []
        for _ in range(3):
            for x, y in source:
                history.append(step(model, optimizer, x, y))

    with oneop.epochs.watch(source, model, optimizer, overhead=1.0, show=False) as w:
        run()
    assert line_of(only(w, "graph").places[0]) == "history.append(step(model, optimizer, x, y))"


def keep(net: Net, hidden: Tensor) -> Tensor:
    net.kept.append(hidden)
    return hidden


def test_an_attribute_of_a_module_inside_the_model() -> None:
    model = nn.Sequential(nn.Identity(), Net(keep))
    found = only(train(model, loader()), "graph")
    place = found.places[0]
    assert place.owner == "the attribute `kept` of a Net"
    assert place.module == "1"
    assert line_of(place) == "net.kept.append(hidden)"


def test_a_hook_registered_in_forward_that_keeps_what_it_sees() -> None:
    seen = []

    def register(net: Net, hidden: Tensor) -> Tensor:
        net.second.register_forward_hook(lambda module, inputs, output: seen.append(output))
        return hidden

    w = train(Net(register), loader(steps=6))
    assert sorted(kinds(w)) == ["graph", "hooks"]
    hooks = next(found for found in w.problems if found.kind == "hooks")
    assert hooks.places[0].owner == "a hook on module `second` (Linear)"
    assert hooks.places[0].module == "second"
    assert line_of(hooks.places[0]).startswith("net.second.register_forward_hook(lambda")
    assert "6, 12, 18, 24" in hooks.evidence[0]
    graph = next(found for found in w.problems if found.kind == "graph")
    assert "`seen`" in graph.places[0].owner
    assert "seen.append(output)" in line_of(graph.places[0])


def test_hooks_on_parameters() -> None:
    def scale(gradient: Tensor) -> Tensor:
        return gradient

    def register(net: Net, hidden: Tensor) -> Tensor:
        net.first.weight.register_hook(scale)
        return hidden

    found = only(train(Net(register), loader(steps=4)), "hooks")
    assert found.places[0].owner == "a hook on parameter `first.weight`"
    assert line_of(found.places[0]) == "net.first.weight.register_hook(scale)"


class KeepsOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.result = y
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * ctx.result


class SavesOutput(KeepsOutput):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * ctx.saved_tensors[0]


def test_tensors_kept_on_ctx() -> None:
    found = only(train(Net(lambda net, hidden: KeepsOutput.apply(hidden)), loader()), "ctx")
    assert found.summary == "Tensors are kept on ctx: KeepsOutput: ctx.result."
    assert line_of(found.places[0]) == "ctx.result = y"
    assert "makes a reference cycle" in found.evidence[-1]
    assert train(Net(lambda net, hidden: SavesOutput.apply(hidden)), loader()).healthy


def test_a_graph_that_grows_from_step_to_step() -> None:
    model, source = Net(), loader(steps=6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    average: Any = torch.zeros(())
    with oneop.epochs.watch(source, model, optimizer, overhead=1.0, show=False) as w:
        for _ in range(3):
            for x, _ in source:
                optimizer.zero_grad()
                average = 0.9 * average + 0.1 * model(x).square().mean()
                average.backward(retain_graph=True)
                for parameter in model.parameters():  # the optimizer would change what the graph saved
                    parameter.grad = None
    found = only(w, "graph")
    assert any(line.startswith("the graph of one loss grows: ") for line in found.evidence)
    assert "backward(retain_graph=True) was called 6 times in the 6 watched steps of the last epoch" in found.evidence
    assert line_of(found.places[0]) == "average = 0.9 * average + 0.1 * model(x).square().mean()"


@pytest.mark.parametrize("cost", [1.0, 40.0])
def test_denormal_numbers_of_the_optimizer(monkeypatch: pytest.MonkeyPatch, cost: float) -> None:
    """What they cost depends on the processor: that figure is put in here, and measured in test_parts.py."""
    monkeypatch.setattr("oneop.epochs.watching.penalty", lambda group: {"sqrt": cost})
    model, source = Net(), batches()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    optimizer.zero_grad()
    model(source[0][0]).sum().backward()
    optimizer.step()
    for state in optimizer.state.values():
        state["exp_avg_sq"].fill_(1e-39)
    with oneop.epochs.watch(source, model, optimizer, overhead=1.0, show=False) as w:
        for _ in range(3):
            for _ in w.loader:
                (0.0 * sum(parameter.sum() for parameter in model.parameters())).backward()
                for state in optimizer.state.values():
                    state["exp_avg_sq"].fill_(1e-39)
    (found,) = w.diagnoses
    assert found.kind == "denormals"
    assert found.severity == ("problem" if cost > 2 else "note")
    assert found.summary.startswith("50% of the optimizer state are denormal numbers")
    assert f"sqrt {cost:.1f} times" in found.evidence[1]


def test_recompilation_in_each_epoch() -> None:
    class Scaled(Net):
        epoch = 0

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * (self.epoch + 0.5)

    model = Scaled()
    compiled = torch.compile(model, backend="eager")

    def next_epoch(epoch: int) -> None:
        model.epoch = epoch

    w = train(compiled, loader(steps=4), epochs=4, before_epoch=next_epoch)
    found = only(w, "recompilation")
    assert "self.epoch" in " ".join(found.evidence)
    assert "1, 1, 1, 1" in found.evidence[0]
    assert found.places[0].file == str(HERE)


def test_compilation_in_the_first_epoch_is_no_problem() -> None:
    w = train(torch.compile(Net(), backend="aot_eager"), loader(steps=40), epochs=3)
    assert w.healthy, w.diagnoses
    assert [bool(epoch.compilations) for epoch in w.epochs] == [True, False, False]
    assert w.epochs[0].compiling > 0
    if w.epochs[0].per_step > 2 * max(epoch.per_step for epoch in w.epochs[1:]) and w.epochs[0].compiling > 0.2:
        assert [found.kind for found in w.diagnoses] == ["compilation"]
        assert "compiled forward with torch.compile" in w.diagnoses[0].summary


class Slow(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(0.02)
        return torch.zeros(8, 16), torch.zeros(8, 1)


def test_a_loader_that_starves_the_training() -> None:
    found = only(train(Net(), torch.utils.data.DataLoader(Slow(), batch_size=None), epochs=3), "loader")
    assert found.summary == "The training waits for its data: it is loaded in between."
    assert "the loader has 0 workers" in found.evidence


def test_workers_that_starve_the_training() -> None:
    source = torch.utils.data.DataLoader(Slow(), batch_size=None, num_workers=1, persistent_workers=True)
    w = train(Net(), source, epochs=3)
    assert "The training waits for its data: the worker delivers too slowly." in [item.summary for item in w.problems]
    assert {item.kind for item in w.problems} == {"loader"}


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(16 << 20))
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    yield file
    os.close(file)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="pages cannot be dropped from memory here")
@pytest.mark.parametrize("drops", ["once", "always"])
def test_data_from_disk(on_disk: int, drops: str) -> None:
    class OnDisk(Slow):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            for start in range(index << 20, (index + 1) << 20, 1 << 16):
                os.pread(on_disk, 1 << 16, start)
            return torch.zeros(8, 16), torch.zeros(8, 1)

    def drop(epoch: int) -> None:
        if epoch == 0 or drops == "always":
            os.posix_fadvise(on_disk, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(on_disk, 0, 0, os.POSIX_FADV_RANDOM)

    w = train(Net(), torch.utils.data.DataLoader(OnDisk(), batch_size=None), epochs=4, before_epoch=drop)
    first, *later = w.epochs
    if not first.disk_bytes:
        pytest.skip(f"the folder for temporary files is not on a disk that the system counts: {first.disk_bytes}")
    assert first.disk_bytes >= 10 << 20
    assert first.requested_bytes is not None
    assert first.requested_bytes >= 10 << 20
    if drops == "once":
        assert [epoch.disk_bytes for epoch in later] == [0, 0, 0]
        assert not {"disk"} & set(kinds(w))
    else:
        assert min(epoch.disk_bytes or 0 for epoch in later) >= 10 << 20
        # Whether that is what the epochs wait for depends on the disk; the rule itself is in test_diagnosis.py.
        assert {*kinds(w)} <= {"disk", "loader"}
