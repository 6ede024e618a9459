"""The tests of a machine with a GPU, run here: on a GPU that is pretended, with kernels that are emulated."""

import os
import re
import subprocess
import sys
from pathlib import Path

import fake_cuda
import pytest
import torch

from oneop.kernels.building import build

HERE = Path(__file__).parent
GPU = HERE.parent / "gpu"


@pytest.mark.skipif(sys.platform != "linux", reason="the pretended GPU is made for Linux")
@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has CUDA: tests/gpu runs on the GPU itself")
def test_the_tests_of_a_machine_with_a_gpu_pass_on_a_pretended_one() -> None:
    library = build(fake_cuda.library())
    command = [sys.executable, str(HERE / "with_fake_gpu.py"), str(library)]
    options = ["-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist", str(GPU)]
    run = subprocess.run(
        [*command, *options],
        cwd=HERE.parents[1],
        env={**os.environ, "ONEOP_QUIET": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert int(passed[1]) >= 54, run.stdout
    reasons = set(re.findall(r"SKIPPED \[\d+\] [^:]+:\d+: (.*)", run.stdout))
    assert reasons == {
        "this test needs a GPU, and the one of this process is pretended",
        "this onnxruntime has no CUDA provider: pip install onnxruntime-gpu",
    }
