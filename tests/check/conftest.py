"""The operators with faults, loaded once."""

from pathlib import Path

import pytest

import oneop
from oneop import registry

FILE = Path(__file__).with_name("faulty.py")


@pytest.fixture(scope="session")
def faulty():
    """The operator of a name in faulty.py."""
    registry.load_file(FILE)

    def find(name: str) -> oneop.Operator:
        return registry.operators()[f"faulty::{name}"]

    return find
