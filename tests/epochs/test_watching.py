"""What a user of `oneop.epochs.watch` meets: plain loops, bad input, exceptions, what is shown and written."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.utils
from torch import Tensor, nn

import oneop.epochs
from oneop.epochs import WatchError, WatchWarning
from oneop.errors import OneopError
from support.trainings import Net, batches, loader, step, train


def parts() -> tuple[Net, torch.optim.Optimizer]:
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def refused(*arguments: Any, **options: Any) -> str:
    with pytest.raises(WatchError) as caught:
        oneop.epochs.watch(*arguments, **options)
    return str(caught.value).removeprefix("oneop.epochs.watch: ")


def test_a_list_is_looped_over_through_the_watch() -> None:
    model, optimizer = parts()
    with oneop.epochs.watch(batches(5), model, optimizer, show=False) as w:
        for _ in range(2):
            assert len(w.loader) == 5
            for x, y in w.loader:
                step(model, optimizer, x, y)
    assert [epoch.steps for epoch in w.epochs] == [5, 5]
    assert w.healthy


def test_the_loader_of_the_watch_is_no_second_epoch() -> None:
    model, optimizer, source = *parts(), loader(steps=3)
    with oneop.epochs.watch(source, model, optimizer, show=False) as w:
        for x, y in w.loader:
            step(model, optimizer, x, y)
        for number, (x, y) in enumerate(source):
            step(model, optimizer, x, y)
            if number == 1:
                break
    assert [(epoch.steps, epoch.complete) for epoch in w.epochs] == [(3, True), (2, False)]
    assert w.loader.batch_size == 8


def test_other_loaders_of_the_class_are_let_through() -> None:
    model, optimizer = parts()
    source = loader(steps=2)
    with oneop.epochs.watch(source, model, optimizer, show=False) as w:
        for x, y in source:
            step(model, optimizer, x, y)
        assert len(list(loader(steps=3))) == 3
    assert [epoch.steps for epoch in w.epochs] == [2]


def test_plain_loops_call_back() -> None:
    model, optimizer = parts()
    with oneop.epochs.watch(None, model, optimizer, overhead=1.0, show=False) as w:
        for _ in range(3):
            w.epoch_begins()
            for _ in range(6):
                with w.loading():
                    x, y = torch.randn(8, 16), torch.randn(8, 1)
                step(model, optimizer, x, y)
            w.epoch_ends()
    assert w.healthy
    for epoch in w.epochs:
        assert epoch.steps >= 6
        assert epoch.complete
        assert min(epoch.data, epoch.forward, epoch.backward, epoch.optimizer) > 0
        assert epoch.graph_nodes


def test_plain_loops_over_an_iterator() -> None:
    model, optimizer = parts()
    with oneop.epochs.watch(None, model, optimizer, show=False) as w:
        for _ in range(2):
            for x, y in w.batches(iter(batches(4))):
                step(model, optimizer, x, y)
    assert [epoch.steps for epoch in w.epochs] == [4, 4]


def test_loaders_inside_an_epoch_that_was_begun_by_hand() -> None:
    model, optimizer, source = *parts(), loader(steps=3)
    with oneop.epochs.watch(source, model, optimizer, show=False) as w:
        for _ in range(2):
            w.epoch_begins()
            for _ in range(2):
                for x, y in source:
                    step(model, optimizer, x, y)
    assert [epoch.steps for epoch in w.epochs] == [6, 6]


def test_several_optimizers() -> None:
    model = Net()
    optimizers = [torch.optim.SGD(layer.parameters(), lr=1e-3) for layer in (model.first, model.second)]
    source = loader(steps=3)
    with oneop.epochs.watch(source, model, optimizers, show=False) as w:
        for _ in range(2):
            for x, y in source:
                model(x).sub(y).square().mean().backward()
                for optimizer in optimizers:
                    optimizer.step()
    assert all(epoch.optimizer > 0 for epoch in w.epochs)


def test_bad_input_is_refused_with_its_remedy(tmp_path: Path) -> None:
    model, optimizer = parts()
    assert (
        refused(iter([1]), model, optimizer)
        == "the loader is an iterator (a list_iterator), which is empty after one epoch. Pass what it was made from, a"
        " DataLoader or a list of batches; or pass None and loop over w.batches(iterator), with a new iterator in each"
        " epoch."
    )
    assert refused(3, model, optimizer).startswith("the loader is a int, which cannot be iterated.")
    assert refused([], optimizer, model).startswith("the model is a SGD, which is no torch.nn.Module. The order is")
    assert (
        refused([], nn.ReLU(), optimizer)
        == "the ReLU has no parameters, so there is nothing to train. Pass the module whose parameters the optimizer"
        " changes."
    )
    assert (
        refused([], Net(), optimizer)
        == "the SGD holds no parameter of the Net: it is the optimizer of another model, or of this one before its"
        " parameters were replaced (by .to(device), say). Make it from this model's parameters()."
    )
    assert refused([], model, None).startswith("the optimizer is a NoneType, which is no torch.optim.Optimizer.")
    assert refused([], model, []).startswith("the list of optimizers is empty.")
    assert refused([], model, optimizer, overhead=2).startswith(
        "overhead=2 is a share of the time watched, from 0 to 1."
    )
    with pytest.raises(OneopError, match=r"the page cannot be written to .*there is no folder"):
        oneop.epochs.watch([], model, optimizer, html=tmp_path / "nowhere" / "page.html")


def test_nested_watches_are_refused() -> None:
    model, optimizer = parts()
    with oneop.epochs.watch(batches(2), model, optimizer, show=False) as w:
        with pytest.raises(WatchError, match=r"a watch is under way already, begun in .*test_watching.py, line \d+\. "):
            oneop.epochs.watch(batches(2), model, optimizer).__enter__()
        for x, y in w.loader:
            step(model, optimizer, x, y)
    assert len(w.epochs) == 1
    with pytest.raises(WatchError, match="this watch has ended"):
        w.__enter__()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, "Loop over w.batches(...), or call w.epoch_begins() at the start of each epoch."),
        ([], "Iterating a list cannot be listened to. Loop over w.loader, which gives the same batches."),
        (loader(2), "The DataLoader that was passed was not iterated inside the block. Pass the object that the loop"),
    ],
    ids=["none", "list", "loader"],
)
def test_no_epoch(source: Any, said: str) -> None:
    with pytest.warns(WatchWarning) as caught, oneop.epochs.watch(source, *parts()) as w:
        pass
    message = str(caught[0].message)
    assert message.startswith(f"oneop.epochs.watch: no epoch was recorded. {said}")
    assert Path(caught[0].filename) == Path(__file__)
    assert (w.epochs, w.diagnoses, w.healthy) == ((), (), False)


def test_an_exception_passes_through_and_what_was_recorded_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    model, optimizer, source = *parts(), loader(steps=4)
    w = oneop.epochs.watch(source, model, optimizer)

    def run() -> None:
        for epoch in range(3):
            for number, (x, y) in enumerate(source):
                step(model, optimizer, x, y)
                if epoch == 2 and number == 1:
                    raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"), w:
        run()
    assert [(epoch.steps, epoch.complete) for epoch in w.epochs] == [(4, True), (4, True), (2, False)]
    assert "Epochs" in capsys.readouterr().out


def test_an_exception_in_the_loader_or_in_forward() -> None:
    def failing(net: Net, hidden: Tensor) -> Tensor:
        raise ArithmeticError("in forward")

    class Failing:
        def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
            yield from batches(1)
            raise ArithmeticError("in the loader")

    for between, source, said in ((failing, loader(2), "in forward"), (None, Failing(), "in the loader")):
        with pytest.raises(ArithmeticError, match=said):
            train(Net(between), source)
    assert train(Net(), loader(2)).healthy


LEFT_BY_AN_EXCEPTION = """
import torch, oneop.epochs
class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y
    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.y
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
optimizer, losses = torch.optim.Adam(model.parameters()), []
model[0].weight.register_hook(lambda gradient: {}["boom"] if len(losses) == 7 else gradient)
with oneop.epochs.watch([torch.randn(8, 4)] * 4, model, optimizer, overhead=1.0, show=False) as w:
    for epoch in range(3):
        for x in w.loader:
            losses.append(Keeps.apply(model(x)).sum())
            losses[-1].backward()
            optimizer.step()
"""


def test_graphs_may_be_alive_when_the_interpreter_ends_after_an_exception() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT_BY_AN_EXCEPTION], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "KeyError: 'boom'"), done.stderr


def test_hooks_stay_once_something_was_compiled() -> None:
    """What torch.compile made has guards on them: hooks that come and go would have it compiled again and again."""
    model, source = Net(), loader(steps=60)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch._dynamo.utils.clear_compilation_metrics()  # other tests have compiled
    there = []
    with oneop.epochs.watch(source, model, optimizer, overhead=0.0, show=False) as w:
        for epoch in range(4):
            called = torch.compile(model, backend="eager") if epoch > 1 else model
            for x, y in source:
                optimizer.zero_grad()
                (called(x) - y).square().mean().backward()
                optimizer.step()
                there.append(len(model._forward_hooks))
    assert w.healthy, w.problems
    assert 0 < sum(there[:120]) < 20
    assert there[-60:] == [1] * 60
    assert [len(epoch.compilations) for epoch in w.epochs][3] == 0
    assert not model._forward_hooks


def test_records_are_plain_and_frozen(tmp_path: Path) -> None:
    w = train(Net(), loader(steps=3), json=tmp_path / "record.json")
    record = json.loads((tmp_path / "record.json").read_text())
    assert record == json.loads(json.dumps(w.as_plain()))
    assert [epoch["steps"] for epoch in record["epochs"]] == [3] * 4
    assert record["verdict"] == w.verdict
    with pytest.raises(FrozenInstanceError):
        w.epochs[0].steps = 4  # type: ignore[misc]


def test_table_page_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses: list[Tensor] = []
    w = train(Net(), loader(steps=6), after=losses.append, html=tmp_path / "page.html", png=tmp_path / "plot.png")
    w.show()
    shown = capsys.readouterr().out
    heads = shown.splitlines()[2].split()
    assert heads[:8] == ["epoch", "steps", "time", "data", "forward", "backward", "optimizer", "other"]
    assert "1 problem found: graph." in shown
    assert "problem: Autograd graphs are kept alive by " in shown
    assert "do: Keep numbers, not tensors with a graph" in shown
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 2
    assert "Autograd graphs are kept alive by" in page
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
