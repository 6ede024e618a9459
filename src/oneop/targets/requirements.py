"""What a package with a target's library needs from pip."""

import importlib
import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """``text`` is what pip reads; ``libraries`` the beginnings of the names of the libraries that it brings."""

    text: str
    libraries: tuple[str, ...] = ()


def requirement_of(target: str) -> Requirement | None:
    """What the target's ``requirement.py`` says; None for a runtime that pip does not install."""
    name = f"oneop.targets.{target}.requirement"
    if importlib.util.find_spec(name) is None:
        return None
    found: Requirement = importlib.import_module(name).requirement()
    return found
