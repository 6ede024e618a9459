"""The tests of numbers, attributes, shapes and errors once more, in other releases of ONNX Runtime."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import ort_releases

TESTS = ("kernels", "attributes", "shapes", "errors", "threads")


@pytest.mark.parametrize("release", ort_releases.folders())
def test_release(release: str) -> None:
    folder = ort_releases.folders()[release] or ort_releases.install(release)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    which = subprocess.run(
        [sys.executable, "-c", "import onnxruntime; print(onnxruntime.__file__)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(which.stdout.strip()).is_relative_to(folder)
    files = [str(Path(__file__).with_name(f"test_{name}.py")) for name in TESTS]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *files],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
