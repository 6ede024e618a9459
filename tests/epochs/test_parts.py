"""The parts of a watch, each by itself, with clocks and readings put in."""

import gc
import linecache
import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oneop.epochs import denormals, graphs, operators, sources, system, words
from oneop.epochs.budget import Budget
from oneop.epochs.collector import CollectorTime, count_objects
from oneop.epochs.phases import AHEAD, BACKWARD, FORWARD, OPTIMIZER, PhaseClock


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time

    def passes(self, seconds: float) -> None:
        self.time += seconds


def test_a_phase_inside_another_suspends_it() -> None:
    now = Clock()
    clock = PhaseClock(now)
    clock.start(AHEAD)
    now.passes(1)
    clock.enter(OPTIMIZER)
    now.passes(2)
    clock.enter(FORWARD)
    now.passes(4)
    clock.leave(FORWARD)
    clock.enter(BACKWARD)
    now.passes(8)
    clock.leave(OPTIMIZER)  # an exception left backward open
    clock.leave(BACKWARD)
    now.passes(16)
    assert clock.take() == {AHEAD: 17.0, OPTIMIZER: 2.0, FORWARD: 4.0, BACKWARD: 8.0}


def test_the_budget_admits_what_it_can_pay_for() -> None:
    now = Clock()
    budget = Budget(0.01, now)
    assert not budget.affords("graph")
    budget.spend("objects", 0.1)  # before the first epoch: at no epoch's cost
    budget.start()
    now.passes(9.9)
    assert not budget.affords("objects")
    now.passes(0.2)
    assert budget.affords("objects")
    with budget.spending("objects"):
        now.passes(0.1)
    assert not budget.affords("objects")
    spent = 0
    for _ in range(1000):
        now.passes(1.0)
        if budget.affords("objects"):
            budget.spend("objects", 0.1)
            spent += 1
    assert 99 <= spent <= 101


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_denormals_are_counted_by_their_bits(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).tiny
    values = torch.tensor([tiny / 2, -tiny / 4, 0.0, -0.0, tiny, 1.0, float("inf"), float("nan")], dtype=dtype)
    for flushes in (False, True):
        torch.set_flush_denormal(flushes)
        try:
            assert denormals._share([values]) == 2 / 8
        finally:
            torch.set_flush_denormal(False)
    assert denormals._share([torch.tensor([1, 2])]) is None


@pytest.mark.parametrize("group", ["parameters", "gradients", "optimizer state"])
def test_what_denormals_cost_is_measured(group: str) -> None:
    costs = denormals.penalty(group)
    assert all(cost > 0.05 for cost in costs.values())
    if torch.set_flush_denormal(True):
        flushed = denormals.penalty(group)
        torch.set_flush_denormal(False)
        assert min(flushed.values()) < 3


def test_reads_that_are_not_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "PROC", tmp_path)
    counters, levels = system.System().counters(), system.System().levels()
    assert (counters.disk_bytes, counters.requested_bytes, levels.process_swap_bytes) == (None, None, None)
    assert counters.refaulted_bytes is None
    assert levels.resident_bytes > 1 << 20
    assert levels.threads >= 1
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "io").write_text("rchar: 70\nread_bytes: 30\n")
    (tmp_path / "vmstat").write_text("pswpin 2\npswpout 1\nworkingset_refault_anon 3\nworkingset_refault_file 4\n")
    counters = system.System().counters()
    assert (counters.disk_bytes, counters.requested_bytes) == (30, 70)
    assert (counters.system_swap_bytes, counters.refaulted_bytes) == (3 * mmap.PAGESIZE, 7 * mmap.PAGESIZE)


def test_collections_are_timed() -> None:
    timed = CollectorTime(iter(range(100)).__next__)
    timed.install()
    try:
        gc.collect()
        gc.collect(0)
    finally:
        timed.remove()
    assert timed.seconds >= 2
    assert timed.collections[2] == 1
    assert timed.collections[0] >= 1


def test_storages_count_once() -> None:
    before = count_objects()
    base = torch.zeros(1000)
    views = [base[:10] for _ in range(5)]
    after = count_objects()
    assert after.tensors - before.tensors == 6
    assert after.bytes - before.bytes == 4000
    assert len(views) == 5


def test_a_token_lives_as_long_as_its_node() -> None:
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    z = y.sum()
    watched, other = graphs.Graphs(), graphs.Graphs()
    token = watched.tag(y.grad_fn)
    watched.step_ended()
    assert watched.tag(y.grad_fn)() is token()
    assert watched.step_of(y.grad_fn) == 0
    assert other.step_of(y.grad_fn) is None
    del y
    assert token() is not None
    assert len(list(graphs.walk([z.grad_fn]))) == 2
    del z
    assert token() is None


def test_the_time_in_an_operator_is_its_own() -> None:
    def event(kind: str, name: str, at: float) -> Any:
        return SimpleNamespace(kind=lambda: kind, name=lambda: name, cpu_elapsed_us=lambda end: end.at - at, at=at)

    thread = [
        event("mark", "__start_profile", 0),
        event("push", "autograd::engine::evaluate_function: X", 0),
        event("push", "aten::linear", 10),
        event("push", "aten::addmm", 20),
        event("pop", "", 50),
        event("pop", "", 60),
        event("push", "demo::op", 60),
        event("pop", "", 65),
        event("pop", "", 100),
        event("push", "aten::cut", 100),
    ]
    found = operators.own_times([thread, []])
    assert [(item.name, item.calls, round(item.seconds * 1e6)) for item in found] == [
        ("aten::addmm", 1, 30),
        ("aten::linear", 1, 20),
        ("demo::op", 1, 5),
    ]


def test_the_line_that_fills_a_name(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(
        "total = 0\nseen = []\nclass A:\n    def f(self, x):\n        self.all = []\n        self.all.append(x)\n"
        "for i in range(3):\n    total = total + i\n    seen[0] = i\n    a, b = 1, 2\n"
    )
    assert sources.filling_line(str(file), "total", attribute=False) == (8, "total = total + i")
    assert sources.filling_line(str(file), "seen", attribute=False) == (9, "seen[0] = i")
    assert sources.filling_line(str(file), "all", attribute=True) == (6, "self.all.append(x)")
    assert sources.filling_line(str(file), "b", attribute=False) == (10, "a, b = 1, 2")
    assert sources.filling_line(str(file), "none", attribute=False) is None
    file.write_text("m = {'loss': []}\nm['loss'].append(1)\nn = {}\nn['a'] += 1\n")
    linecache.checkcache()
    assert sources.filling_line(str(file), "m", attribute=False) == (2, "m['loss'].append(1)")
    assert sources.filling_line(str(file), "n", attribute=False) == (4, "n['a'] += 1")
    assert sources.filling_line("<stdin>", "none", attribute=False) is None


def test_words() -> None:
    assert [words.seconds(value) for value in (0, 2e-9, 1.5e-6, 0.0123, 75.0)] == [
        "0 s",
        "2 ns",
        "1.5 µs",
        "12.3 ms",
        "75 s",
    ]
    assert [words.size(value) for value in (0, 999, 1500, 2e6, 3.21e9)] == ["0 B", "999 B", "1.5 kB", "2 MB", "3.21 GB"]
