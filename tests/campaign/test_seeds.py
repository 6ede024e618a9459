"""The tool that asks many seeds counts what it is told, and fails where an operator does."""

import sys
from pathlib import Path

import pytest

from campaign import seeds
from campaign.faults import FAULTS
from campaign.planting import planted


def test_a_correct_operator(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["seeds", "1", "--first", "3"])
    monkeypatch.setattr(seeds, "NAMES", ("swish",))
    assert seeds.main() == 0
    said = capsys.readouterr()
    assert said.out.startswith("1 seeds, 1 operators: ")
    assert said.out.endswith(" calls, 0 false alarms\n")
    assert "seed 3: 0 false alarms so far" in said.err


def test_a_wrong_operator(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fault = next(item for item in FAULTS if item.title == "a factor is dropped")
    wrong = planted(fault, tmp_path)
    monkeypatch.setattr(sys, "argv", ["seeds", "1"])
    monkeypatch.setattr(seeds, "NAMES", (fault.operator,))
    monkeypatch.setattr(seeds, "correct", lambda name: wrong)
    assert seeds.main() == 1
    assert "FAILED" in capsys.readouterr().out
