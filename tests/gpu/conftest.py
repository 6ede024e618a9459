"""The tests of a machine with a GPU. Without one each is skipped, and says so; tests/cuda runs them on a pretended GPU.

Those that ask for the fixture `real_gpu` need the true thing: CUDA graphs, ordering of streams, other runtimes.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

HERE = Path(__file__).parent


def pretended() -> Any:
    """The module that stands in for a GPU in this process, or None."""
    found = sys.modules.get("fake_cuda")
    return found if found is not None and found.is_pretended() else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if pretended() or torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="this machine has no GPU that torch can use (torch.cuda.is_available() is False)")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(skip)


@pytest.fixture
def real_gpu() -> None:
    if pretended():
        pytest.skip("this test needs a GPU, and the one of this process is pretended")


@pytest.fixture
def two_gpus() -> None:
    if not pretended() and torch.cuda.device_count() < 2:
        pytest.skip("this test needs two GPUs, and this machine has one")


@pytest.fixture
def many() -> int:
    """Elements: more than one block for each, where there is a GPU to compute them."""
    return 300_001 if pretended() else 20_000_003


@pytest.fixture
def on_new_stream() -> Callable[..., contextlib.AbstractContextManager[int]]:
    """`with on_new_stream(device) as handle:` makes another stream current."""

    @contextlib.contextmanager
    def change(device: int = 0) -> Iterator[int]:
        fake = pretended()
        if fake:
            with fake.stream(7, device) as handle:
                yield handle
        else:
            stream = torch.cuda.Stream(device)
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                yield stream.cuda_stream
            torch.cuda.current_stream(device).wait_stream(stream)

    return change


@pytest.fixture
def memory_in_use() -> Callable[[], int]:
    """A measure of what is allocated on the GPU."""
    fake = pretended()
    return fake.blocks if fake else lambda: torch.cuda.memory_allocated()


@pytest.fixture
def allocations() -> Callable[[], int]:
    """How often memory of the GPU has been asked of torch."""
    fake = pretended()
    return fake.requests if fake else lambda: torch.cuda.memory_stats()["allocation.all.allocated"]


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    torch.manual_seed(0)
