"""The pytest plugin of oneop: the fixture ``oneop_check``, and options for how long and with which seed it looks.

It stands outside the package so that pytest, which imports it in every run, does not import torch for it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from oneop.check.results import Report


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("oneop", "checking operators (the fixture oneop_check)")
    group.addoption("--oneop-thorough", action="store_true", help="60 seconds an operator instead of 10")
    group.addoption("--oneop-seed", type=int, default=0, help="decides which calls are made up (default: 0)")


@pytest.fixture
def oneop_check(request: pytest.FixtureRequest) -> "Callable[..., Report]":
    """``oneop.testing.check`` with the options of the command line: ``oneop_check(op)``."""
    import oneop.testing

    quick = not request.config.getoption("--oneop-thorough")
    seed = request.config.getoption("--oneop-seed")

    def run(op: Any, **options: Any) -> "Report":
        __tracebackhide__ = True
        return oneop.testing.check(op, **{"quick": quick, "seed": seed, **options})

    return run
