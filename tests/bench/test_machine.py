"""What the machine is said to do: figures that a machine can have, in the dtype and with the threads asked for."""

import pytest
import torch

from oneop.bench import machine
from oneop.bench.machine import measure
from oneop.definition.dtypes import BY_NAME


def test_memory_and_cores() -> None:
    before = torch.get_num_threads()
    found = measure(1, BY_NAME["float32"])
    assert (found.threads, found.dtype) == (1, "float32")
    assert 1e8 < found.bandwidth < 1e13
    assert found.arithmetic is not None
    assert 1e8 < found.arithmetic < 1e14
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", ["int64", "bool"])
def test_no_product_for_what_is_not_floating(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneop.bench.machine.SECONDS", 0.01)
    assert measure(1, BY_NAME[name]).arithmetic is None


def test_what_is_counted_for_each_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """STREAM counts three arrays of the triad; a product of n by n has 2 n^3 operations."""
    monkeypatch.setattr(machine, "_best", lambda run: 0.5)
    monkeypatch.setattr(machine, "ARRAY", 2**20)
    monkeypatch.setattr(machine, "PRODUCT", 64)
    found = measure(1, BY_NAME["float32"])
    assert (found.bandwidth, found.arithmetic) == (2 * 3 * 2**20, 2 * 2 * 64**3)
