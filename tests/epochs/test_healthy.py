"""Trainings in which nothing is wrong are called healthy."""

import gc
import json
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import oneop
import oneop.epochs
from support.trainings import Net, batches, loader, step, train


def check(w: oneop.epochs.Watch) -> None:
    assert w.problems == (), w.problems
    assert w.healthy
    assert w.verdict.startswith("Healthy: ")
    json.dumps(w.as_plain())


@pytest.mark.parametrize("overhead", [1.0, 0.01, 0.0])
def test_a_plain_training(overhead: float) -> None:
    w = train(Net(), loader(), epochs=6, overhead=overhead)
    check(w)
    assert [epoch.steps for epoch in w.epochs] == [12] * 6
    for epoch in w.epochs:
        assert epoch.kept_graphs <= 2
        parts = epoch.data + epoch.forward + epoch.backward + epoch.optimizer + epoch.other + epoch.watching
        assert parts == pytest.approx(epoch.seconds, rel=0.2)


def test_losses_that_are_detached_and_an_average_of_numbers() -> None:
    losses: list[Tensor] = []
    total = []
    check(train(Net(), loader(), after=lambda loss: (losses.append(loss.detach()), total.append(loss.item()))[0]))


def test_with_an_operator_of_oneop() -> None:
    @oneop.op("epochs::squash")
    def squash(x: Float[Tensor, "*batch n"], *, scale: float = 1.0) -> Float[Tensor, "*batch n"]:
        return torch.tanh(x * scale)

    w = train(Net(lambda net, hidden: squash(hidden, scale=0.5)), loader(), epochs=4)
    check(w)
    assert any(item.name == "epochs::squash" for epoch in w.epochs for item in epoch.operators)
    assert any(item.name == "aten::addmm" for epoch in w.epochs for item in epoch.operators)


def test_compiled_models() -> None:
    model = Net()
    check(train(torch.compile(model, backend="eager"), loader(), epochs=4))
    w = train(model, loader(), epochs=3)  # what is inside the compiled one, later on
    check(w)
    assert all(epoch.forward_is_measured for epoch in w.epochs)


def test_a_model_compiled_in_place_is_not_touched() -> None:
    model = Net()
    model.compile(backend="eager", fullgraph=True)
    w = train(model, loader(), epochs=4)
    check(w)
    assert not any(epoch.forward_is_measured for epoch in w.epochs)
    assert all(epoch.forward > 0 for epoch in w.epochs)
    assert [bool(epoch.compilations) for epoch in w.epochs] == [True, False, False, False]


def test_workers() -> None:
    weight = torch.randn(512, 512) / 23

    def compute(net: Net, hidden: Tensor) -> Tensor:
        for _ in range(150):  # much more than loading takes, also where the worker gets no core of its own
            hidden = (hidden @ weight).tanh()
        return hidden

    check(train(Net(compute, width=512), loader(steps=6, num_workers=1, persistent_workers=True), epochs=3))


def test_caches_that_fill_up() -> None:
    cache: dict[int, Tensor] = {}

    def remember(net: Net, hidden: Tensor) -> Tensor:
        cache[len(cache) % 20] = torch.zeros(100, 100)
        return hidden

    check(train(Net(remember), loader(), epochs=5))


def test_hooks_that_are_removed_and_hooks_from_before() -> None:
    def once(net: Net, hidden: Tensor) -> Tensor:
        handle = net.second.register_forward_hook(lambda module, inputs, output: None)
        handle.remove()
        return hidden

    model = Net(once)
    model.first.register_forward_hook(lambda module, inputs, output: None)
    w = train(model, loader())
    check(w)
    assert {epoch.hooks for epoch in w.epochs} == {1}


def test_gradients_that_are_accumulated_and_validation_on_the_same_loader() -> None:
    model, source = Net(), loader()
    optimizer = torch.optim.Adam(model.parameters())
    with oneop.epochs.watch(source, model, optimizer, overhead=1.0, show=False) as w:
        for _ in range(3):
            for number, (x, y) in enumerate(source):
                (model(x) - y).square().mean().backward()
                if number % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()
            with torch.no_grad():
                for x, _ in source:
                    model(x)
    check(w)
    assert [epoch.backwards for epoch in w.epochs] == [12, 0] * 3


def test_lbfgs_calls_forward_and_backward_inside_its_step() -> None:
    model = nn.Linear(16, 1)
    source = batches(3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    with oneop.epochs.watch(source, model, optimizer, overhead=1.0, show=False) as w:
        for _ in range(3):
            for x, y in w.loader:

                def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                    optimizer.zero_grad()
                    loss = (model(x) - y).square().mean()
                    loss.backward()
                    return loss

                optimizer.step(closure)
    check(w)
    assert all(epoch.optimizer > 0 and epoch.forward > 0 and epoch.backward > 0 for epoch in w.epochs)
    assert all(epoch.forward + epoch.backward + epoch.optimizer < epoch.seconds for epoch in w.epochs)


@pytest.mark.parametrize("overhead", [1.0, 0.004])
def test_two_optimizers_a_shared_graph_and_a_gradient_of_a_gradient(overhead: float) -> None:
    generator, critic = Net(), nn.Linear(1, 1)
    ours = torch.optim.Adam(generator.parameters())
    theirs = torch.optim.Adam(critic.parameters())
    source = loader(30)
    with oneop.epochs.watch(source, generator, ours, overhead=overhead, show=False) as w:
        for _ in range(4):
            for x, y in source:
                x.requires_grad_()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    made = generator(x)
                (slope,) = torch.autograd.grad(made.float().tanh().sum(), x, create_graph=True)
                theirs.zero_grad()
                (critic(made.detach().float()).mean() - critic(y).mean()).backward()
                theirs.step()
                ours.zero_grad()
                slope.square().mean().backward(retain_graph=True)
                critic(made.float()).mean().neg().backward()
                ours.step()
    check(w)


def test_everything_is_taken_away_again() -> None:
    source, model = loader(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine: Any = torch.autograd
    before = (
        type(source).__iter__,
        engine._engine_run_backward,
        torch.autograd.profiler.profile.__init__,
        list(gc.callbacks),
        len(model._forward_hooks) + len(model._forward_pre_hooks),
    )
    train(model, source, optimizer=optimizer)
    assert before == (
        type(source).__iter__,
        engine._engine_run_backward,
        torch.autograd.profiler.profile.__init__,
        list(gc.callbacks),
        len(model._forward_hooks) + len(model._forward_pre_hooks),
    )
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_a_profiler_of_the_users_may_run_meanwhile() -> None:
    model, source = Net(), loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with oneop.epochs.watch(source, model, optimizer, overhead=1.0, show=False) as w:
        for epoch in range(3):
            for x, y in source:
                if epoch == 1:
                    with torch.autograd.profiler.profile(use_kineto=False) as profile:
                        step(model, optimizer, x, y)
                    assert any(event.name == "aten::addmm" for event in profile.function_events)
                else:
                    step(model, optimizer, x, y)
    check(w)
    assert [bool(epoch.operators) for epoch in w.epochs] == [True, False, False]
