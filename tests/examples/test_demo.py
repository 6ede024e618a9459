"""The main job, as `make demo` runs it."""

import re
import subprocess
import sys
from pathlib import Path

import demo
import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_main_job(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "examples" / "demo.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"│ (PyTorch|ONNX Runtime, file alone|ONNX Runtime, native) +│ +([\d.]+)% │", done.stdout)
    assert [title for title, _ in rows] == ["PyTorch", "ONNX Runtime, file alone", "ONNX Runtime, native"]
    assert len({accuracy for _, accuracy in rows}) == 1
    assert float(rows[0][1]) >= 95
    assert "native: our operators run as kernels in C++ (1 Attend, 1 ConcatScore, 2 ScaledLinear)" in unwrapped(
        done.stdout
    )
    assert "file alone: our operators run as the functions in the file" in unwrapped(done.stdout)
    assert "Warning" not in done.stderr


def unwrapped(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize(
    ("accuracy", "other", "difference", "status", "message"),
    [
        (0.98, 0.98, 1e-6, 0, ""),
        (0.98, 0.97, 1e-6, 1, "the ways differ: accuracies [0.97, 0.98], scores by [0.0, 1e-06]"),
        (0.98, 0.98, 1e-2, 1, "the ways differ: accuracies [0.98], scores by [0.0, 0.01]"),
        (0.98, 0.98, float("nan"), 1, "the ways differ: accuracies [0.98], scores by [0.0, nan]"),
        (0.5, 0.5, 1e-6, 1, "the accuracy is 50.00%; it should be at least 95%"),
    ],
)
def test_its_verdict_can_be_bad(
    accuracy: float, other: float, difference: float, status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results = {"one": demo.Measured(accuracy, 0.0, 1e-6, 1e-6), "two": demo.Measured(other, difference, 1e-6, 1e-6)}
    assert demo.verdict(results) == status
    assert capsys.readouterr().err.strip() == message
