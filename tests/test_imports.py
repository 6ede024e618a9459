"""Importing oneop is quick and brings in no other runtime, and the lint rule about imports can fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RUNTIMES = ("onnx", "onnxscript", "onnx_ir", "onnxruntime", "openvino", "tensorrt")


def test_importing_oneop_brings_in_no_runtime_but_torch() -> None:
    code = f"import oneop, sys; print(*[name for name in {RUNTIMES} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_importing_oneop_costs_less_than_a_tenth_of_a_second_beyond_torch() -> None:
    # Processor time: the tests share their machine, and waiting for it is no cost of the import.
    code = "import torch, time; start = time.process_time(); import oneop; print(time.process_time() - start)"
    seconds = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        seconds.append(float(done.stdout))
        if seconds[-1] < 0.1:
            return
    pytest.fail(f"import oneop took {min(seconds):.3f} s beyond import torch, at best")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the import rules on the package in ``folder``."""
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache", ROOT / "pyproject.toml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "src" / "oneop", folder / "oneop", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_the_rules_hold(package: Path) -> None:
    done = lint(package)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "statement", "rule"),
    [
        ("kernels/bad.py", "import torch", "torch is imported in"),
        ("targets/onnxruntime/bad.py", "from torch import Tensor", "torch is imported in"),
        ("targets/pytorch/bad.py", "def later():\n    import onnx", "onnx is imported in targets/onnx"),
        ("targets/onnxruntime/bad.py", "import onnx_ir.passes", "onnx is imported in targets/onnx"),
        ("targets/onnx/bad.py", "import onnxruntime", "onnxruntime is imported in targets/onnxruntime only"),
        ("targets/onnx/bad.py", "import openvino", "openvino is imported in targets/openvino only"),
        ("targets/onnx/bad.py", "import tensorrt", "tensorrt is imported in targets/tensorrt only"),
        ("definition/bad.py", "import onnxruntime", "the definition knows no runtime"),
        ("definition/bad.py", "import oneop.targets.pytorch", "the definition knows no runtime"),
        ("definition/bad.py", "import oneop.operator", "the definition knows no runtime"),
        ("targets/onnxruntime/bad.py", "import oneop.targets.onnx", "no target knows another"),
        ("targets/onnx/bad.py", "import oneop.targets.pytorch", "no target knows another"),
    ],
)
def test_each_rule_can_fail(package: Path, file: str, statement: str, rule: str) -> None:
    bad = package / "oneop" / file
    bad.write_text(statement + "\n")
    try:
        done = lint(package)
    finally:
        bad.unlink()
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [line for line in done.stdout.splitlines() if "BROKEN" in line]
    assert any(line.startswith(rule) for line in broken), done.stdout
