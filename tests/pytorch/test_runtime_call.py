"""The fast call takes what the operator takes; all that is unusual goes through Python, with the same result."""

import gc
import sys
import threading
import time
from typing import Any

import pytest
import torch
from pytorch import runtime_operators as ops
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

from oneop.targets.pytorch import native, runtime

X, W = torch.randn(3), torch.randn(3)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    """The fast call of muladd, and the calls that it handed to its fallback."""
    native.prepare(ops.muladd)
    seen: list[Any] = []

    def fallback(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return ops.muladd.call_torch(*args, **kwargs)

    return _fast_call(ops.muladd, fallback), seen


def _fast_call(operator: Any, fallback: Any) -> Any:
    from oneop import registry
    from oneop.kernels.building import build
    from oneop.kernels.library import kernel_library

    siblings = [item for item in registry.defined_in(operator.defined_in) if item.has_kernels]
    path = build(kernel_library([item.kernel_spec() for item in siblings]))
    gradient = operator.gradient_operator.definition.name
    return runtime.attach(operator.definition, path, gradient, output_type=operator.output_type, fallback=fallback)


def test_plain_calls_do_not_reach_python(watched: Any) -> None:
    call, seen = watched
    built_at_run_time = "".join(["al", "pha"])
    for args, kwargs in [
        ((X, W), {}),
        ((X, W), {"alpha": 2.0}),
        ((X, W), {"alpha": 2}),
        ((X,), {"w": W, "alpha": 2.0}),
        ((), {"w": W, "x": X}),
        ((X, W), {built_at_run_time: 3.0}),
        ((torch.nn.Parameter(X), W), {}),
    ]:
        given = {"alpha": 1.0, **kwargs}
        assert_close(call(*args, **kwargs), given["alpha"] * X * W, check_dtype=True)
    assert seen == []


class Subclass(Tensor):
    pass


@pytest.mark.parametrize(
    ("args", "kwargs", "result"),
    [
        ((X,), {}, TypeError),
        ((X, W, 2.0), {}, TypeError),
        ((X, W), {"beta": 1.0}, TypeError),
        ((X, W), {"x": X}, TypeError),
        ((X, W), {"alpha": "2"}, Exception),
        ((X, W), {"alpha": 10**400}, Exception),
        ((X, W), {"alpha": True}, Exception),
        ((X, [1.0]), {}, Exception),
        ((X, None), {}, Exception),
        ((X.as_subclass(Subclass), W), {}, Tensor),
    ],
)
def test_what_is_unusual_goes_through_python(watched: Any, args: Any, kwargs: Any, result: type) -> None:
    call, seen = watched
    if issubclass(result, Tensor):
        assert_close(call(*args, **kwargs).as_subclass(Tensor), X * W)
    else:
        with pytest.raises((result, RuntimeError)) as found:
            call(*args, **kwargs)
        with pytest.raises(found.type):
            ops.muladd.call_torch(*args, **kwargs)
    assert len(seen) == 1


def test_function_modes_see_the_call(watched: Any) -> None:
    call, seen = watched
    names: list[str] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    with Watch():
        call(X, W)
    assert len(seen) == 1
    assert any("muladd" in name for name in names)


def test_tracing_sees_the_call(watched: Any) -> None:
    call, _ = watched
    traced = torch.jit.trace(lambda x, w: call(x, w, alpha=2.0), (X, W), check_trace=False)
    assert "runtime::muladd" in str(traced.graph)


def test_dispatch_modes_see_the_call(watched: Any) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    call, _ = watched
    names: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    with Watch():
        call(X, W)
    assert names == ["runtime.muladd.default"]


def test_references_are_not_lost_or_kept(watched: Any) -> None:
    call, _ = watched
    alpha, x = 1234.5, torch.randn(3)
    before = (sys.getrefcount(alpha), sys.getrefcount(x), sys.getrefcount(X), sys.getrefcount(None))
    for _ in range(1000):
        call(x, W, alpha=alpha)
    after = (sys.getrefcount(alpha), sys.getrefcount(x), sys.getrefcount(X), sys.getrefcount(None))
    assert all(abs(a - b) < 10 for a, b in zip(after, before, strict=True))


def test_a_call_object_can_be_collected_and_described() -> None:
    native.prepare(ops.muladd)
    call = _fast_call(ops.muladd, lambda *args, **kwargs: None)
    assert repr(call) == "<native call of runtime::muladd>"
    assert gc.is_tracked(call)
    with pytest.raises(TypeError, match="cannot create"):
        type(call)()
    del call
    gc.collect()
    assert_close(ops.muladd(X, W), X * W)


def test_another_thread_gets_its_turn_while_a_kernel_runs() -> None:
    turns: list[int] = []
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            turns.append(1)
            time.sleep(0)  # lets go of the interpreter

    x = torch.randn(2000, 2000)
    ops.rows(x)
    thread = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)  # the main thread is not interrupted: it gives a turn only where it lets go
    try:
        thread.start()
        before = len(turns)
        for _ in range(20):
            ops.rows(x)
        during = len(turns) - before
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert during > 0
