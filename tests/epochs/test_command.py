"""`oneop epochs SCRIPT`: the script runs as it is, and its epochs are shown."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oneop.cli import app

SCRIPT = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import helper
assert __name__ == "__main__" and sys.argv[1:] == ["--size", "8"], sys.argv
def main():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    training, validation = DataLoader(data, batch_size=8), DataLoader(data, batch_size=32)
    losses = []
    for epoch in range(3):
        for x, y in training:
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        with torch.no_grad():
            for x, y in validation:
                model(x)
    print("trained")
main()
"""


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["epochs", *arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


def test_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("")
    main, argv = sys.modules["__main__"], sys.argv[:]
    code, shown, _ = run("--overhead", "1", "--json", "record.json", "train.py", "--size", "8")
    assert code == 0, shown
    assert shown.startswith("trained\n")
    assert "Autograd graphs are kept alive by the variable `losses` of main(), a collection of" in shown
    line = SCRIPT.splitlines().index("            losses.append(loss)") + 1
    assert f"at {tmp_path.resolve()}/train.py, line {line}: losses.append(loss)" in shown
    epochs = json.loads((tmp_path / "record.json").read_text())["epochs"]
    assert [epoch["steps"] for epoch in epochs] == [8, 8, 8]  # validation is none
    assert all(epoch["forward_is_measured"] for epoch in epochs)
    assert (sys.modules["__main__"], sys.argv) == (main, argv)


def test_a_script_that_fails_or_trains_nothing(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("raise ValueError('theirs')")
    done = CliRunner().invoke(app, ["epochs", "fails.py"])
    assert isinstance(done.exception, ValueError)
    (tmp_path / "empty.py").write_text("x = 1")
    with pytest.warns(UserWarning, match="no epoch was recorded"):
        code, _, said = run("empty.py")
    assert code == 1
    assert "empty.py: no epoch was recorded: the script iterated no DataLoader. For other loops use" in said
    code, _, said = run("missing.py")
    assert (code, said) == (
        1,
        "oneop: missing.py: there is no such file. Give the path of a Python script that trains.\n",
    )
