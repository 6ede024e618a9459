"""docs/inspect.md shows what is printed."""

import shutil
from pathlib import Path

import pytest
import torch
import typer.main
from typer.testing import CliRunner

from oneop.cli import app
from oneop.registry import load_file
from support.onnx_checks import export_quietly

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "inspect.md").read_text(encoding="utf-8")


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = TEXT.split("```console\n")[1].split("```")[0]
    command, _, expected = shown.partition("\n")
    for source in (ROOT / "examples" / "scaled_linear_cpp").glob("scaled_linear*"):
        shutil.copy(source, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    (scaled_linear,) = (item for item in load_file("scaled_linear.py") if not item.definition.is_gradient)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return scaled_linear(x, self.weight, alpha=2.0)

    batch = {"x": {0: torch.export.Dim("batch")}}
    export_quietly(Model(), (torch.randn(3, 5),), Path("model.onnx"), dynamic_shapes=batch)
    done = CliRunner().invoke(app, command.removeprefix("$ oneop ").split())
    assert done.exit_code == 0
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    assert printed.replace(torch.__version__, "2.13.0+cpu").strip() == expected.strip()


def test_every_option_is_explained() -> None:
    command = typer.main.get_command(app).commands["inspect"]  # type: ignore[attr-defined]
    options = [name for item in command.params for name in item.opts if name.startswith("--")]
    assert len(options) == 8
    for name in options:
        assert f"| `{name}" in TEXT
