"""The call itself on the GPU: devices, streams, memory, failures, and what has no kernel."""

import contextlib
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import cuda_operators
import pytest
import torch

from oneop.errors import CallError

OnNewStream = Callable[..., contextlib.AbstractContextManager[int]]


def test_the_kernel_runs_on_the_current_stream(on_new_stream: OnNewStream) -> None:
    x = torch.ones(3, device="cuda")
    assert cuda_operators.whereabouts(x).tolist() == [0, 0]
    with on_new_stream() as handle:
        assert cuda_operators.whereabouts(x).tolist() == [handle, 0]
    assert cuda_operators.whereabouts(x).tolist() == [0, 0]


def test_the_kernel_runs_on_the_device_of_its_tensors(two_gpus: None, on_new_stream: OnNewStream) -> None:
    """The current device is another one, and stays it."""
    x = torch.ones(3, device="cuda:1")
    found = cuda_operators.whereabouts(x)
    assert found.device == torch.device("cuda:1")
    assert found.tolist() == [0, 1]
    with on_new_stream(1) as handle:
        assert cuda_operators.whereabouts(x).tolist() == [handle, 1]
    assert torch.empty(1, device="cuda").device.index == 0


def test_tensors_on_different_devices_are_refused() -> None:
    x, y = torch.ones(3, device="cuda"), torch.ones(3)
    with pytest.raises(CallError) as caught:
        cuda_operators.axpby(x, y)
    assert (
        str(caught.value) == "gpu::axpby: input `y` is on cpu, and `x` is on cuda:0. Move one of them with `.to(...)`."
    )
    with pytest.raises(
        CallError, match=r"input `x` is on cpu, and `y` is on cuda:0|`y` is on cuda:0, and `x` is on cpu"
    ):
        cuda_operators.axpby(y, x)


def test_tensors_on_two_gpus_are_refused(two_gpus: None) -> None:
    with pytest.raises(CallError, match="input `y` is on cuda:1, and `x` is on cuda:0"):
        cuda_operators.axpby(torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1"))


def test_a_dtype_without_a_kernel_runs_the_reference() -> None:
    x = torch.randn(3, 4).half().to("cuda")
    found = cuda_operators.spread(x)
    assert found.dtype == torch.float16
    torch.testing.assert_close(
        found.float().cpu(), cuda_operators.spread.reference(x.float().cpu()), rtol=1e-2, atol=1e-2
    )
    assert cuda_operators.whereabouts(torch.ones(3, dtype=torch.float64, device="cuda")).tolist() == [-1, -1]


def test_an_operator_without_kernels_for_the_cpu_runs_its_reference_there() -> None:
    assert cuda_operators.whereabouts(torch.ones(3)).tolist() == [-1, -1]
    x = torch.randn(3, 4)
    torch.testing.assert_close(cuda_operators.spread(x), x.var(1, unbiased=False))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("fail", "gpu::failing: as it was asked to"),
        ("launch", "gpu::failing: CUDA reports cudaErrorInvalidConfiguration: invalid configuration argument"),
        ("check", "gpu::failing: CUDA reports cudaErrorInvalidValue: invalid argument"),
        ("memory", "gpu::failing: the kernel ran out of memory. Pass smaller inputs."),
    ],
)
def test_failures_are_errors_and_leave_nothing_behind(how: str, message: str) -> None:
    x = torch.arange(5.0, device="cuda")
    with pytest.raises(CallError) as caught:
        cuda_operators.failing(x, how=how)
    assert str(caught.value) == message
    assert cuda_operators.failing(x, how="not at all").tolist() == [0, 1, 2, 3, 4]
    assert cuda_operators.axpby(x, x).tolist() == [0, 2, 4, 6, 8]


def test_sizes_that_do_not_fit_are_refused_as_on_the_cpu() -> None:
    with pytest.raises(CallError) as caught:
        cuda_operators.axpby(torch.ones(3, device="cuda"), torch.ones(4, device="cuda"))
    assert (
        str(caught.value)
        == 'gpu::axpby: input `y` has shape (4,); its definition is "*batch n", and n is 3 here, from `x`. Pass a'
        " tensor that fits."
    )


def test_scratch_memory_and_outputs_are_given_back(memory_in_use: Callable[[], int]) -> None:
    x = torch.randn(5, 300, device="cuda")
    cuda_operators.spread(x)
    gc.collect()  # what the tests before left
    before = memory_in_use()
    for _ in range(20):
        cuda_operators.spread(x)
        cuda_operators.positive(x[0])
        with pytest.raises(CallError):
            cuda_operators.failing(x[0], how="fail")
    gc.collect()
    assert memory_in_use() == before


def test_scratch_memory_is_torchs(allocations: Callable[[], int]) -> None:
    """An output, and what the kernel asks for: torch knows which stream still works on it."""
    x = torch.randn(5, 300, device="cuda")
    cuda_operators.spread(x)
    before = allocations()
    cuda_operators.axpby(x, x)
    assert allocations() - before == 1
    cuda_operators.spread(x)
    assert allocations() - before == 3


def test_outputs_never_share_memory_with_inputs() -> None:
    x = torch.ones(4, device="cuda")
    found = cuda_operators.failing(x, how="not at all")
    found.zero_()
    assert x.tolist() == [1, 1, 1, 1]


def test_lists_longer_than_the_kernel_takes() -> None:
    x = torch.ones(2, device="cuda")
    with pytest.raises(
        CallError, match=r"gpu::blend: the kernel takes up to 8 values or tensors in a list, and is given 9"
    ):
        cuda_operators.blend(x, None, [x] * 9)


def test_many_threads_at_once() -> None:
    def work(number: int) -> bool:
        x = torch.full((100,), float(number), device="cuda")
        return all(cuda_operators.axpby(x, x, alpha=1.0, beta=2.0).eq(3.0 * number).all().item() for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_work_on_one_stream_is_in_order(real_gpu: None) -> None:
    """The copy is put on the stream before the kernel has ended, and sees its result all the same."""
    x = torch.zeros(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = cuda_operators.slow(cuda_operators.slow(x, rounds=20_000), rounds=20_000)
        copied = found.clone()
    stream.synchronize()
    assert copied.eq(40_000).all().item()


def test_streams_run_side_by_side(real_gpu: None) -> None:
    """Two small kernels on two streams take less time than one after the other."""
    x = torch.zeros(32, device="cuda")
    cuda_operators.slow(x, rounds=10)

    def seconds(streams: list[torch.cuda.Stream]) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for stream in streams:
            stream.wait_event(begin)
            with torch.cuda.stream(stream):
                cuda_operators.slow(x, rounds=2_000_000)
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)

    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    assert seconds([one, other]) < 1.6 * seconds([one])


def test_memory_is_not_given_to_another_stream_too_early(real_gpu: None) -> None:
    """Scratch memory goes back when the call ends, while the GPU still works on it."""
    x = torch.randn(2000, 2000, device="cuda", dtype=torch.float64)
    expected = cuda_operators.spread.reference(x)
    streams = [torch.cuda.Stream() for _ in range(4)]
    found = []
    for round_ in range(20):
        stream = streams[round_ % 4]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found.append(cuda_operators.spread(x))
    torch.cuda.synchronize()
    for own in found:
        torch.testing.assert_close(own, expected)
