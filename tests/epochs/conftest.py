"""Every test here trains on one thread."""

import sys

import pytest

from support.trainings import one_thread

single_thread = pytest.fixture(autouse=True)(one_thread)


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """torch.compile remembers what other tests compiled."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
