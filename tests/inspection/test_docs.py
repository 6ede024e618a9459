"""docs/inspect.md shows what is printed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import typer.main

from oneop.cli import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "inspect.md").read_text(encoding="utf-8")


PROGRAM = """
import sys
from pathlib import Path

import torch
from oneop.cli import app
from scaled_linear import scaled_linear
from support.onnx_checks import export_quietly

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 5))

    def forward(self, x):
        return scaled_linear(x, self.weight, alpha=2.0)

batch = {"x": {0: torch.export.Dim("batch")}}
export_quietly(Model(), (torch.randn(3, 5),), Path("model.onnx"), dynamic_shapes=batch)
app(sys.argv[1:])
"""


def test_the_example(tmp_path: Path) -> None:
    """In a process of its own, since it defines an operator of the examples again, from another file."""
    shown = TEXT.split("```console\n")[1].split("```")[0]
    command, _, expected = shown.partition("\n")
    for source in (ROOT / "examples" / "scaled_linear_cpp").glob("scaled_linear*"):
        shutil.copy(source, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command.removeprefix("$ oneop ").split()],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "110", "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    assert printed.replace(torch.__version__, "2.13.0+cpu").strip() == expected.strip()


def test_every_option_is_explained() -> None:
    command = typer.main.get_command(app).commands["inspect"]  # type: ignore[attr-defined]
    options = [name for item in command.params for name in item.opts if name.startswith("--")]
    assert len(options) == 8
    for name in options:
        assert f"| `{name}" in TEXT
