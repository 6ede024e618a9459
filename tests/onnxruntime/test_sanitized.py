"""The adapter and the kernels under AddressSanitizer and UndefinedBehaviorSanitizer, inside the real ONNX Runtime."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oneop.kernels.building import find_compiler

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
TESTS = ("kernels", "attributes", "shapes", "errors")


def preloaded(name: str) -> str:
    """The path of one of the compiler's libraries: an executable that is not sanitized has to load them first."""
    command = [*find_compiler("c++").command, f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(found).is_file(), f"{name} is not there: install the compiler's sanitizers"
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
def test_no_sanitizer_complains() -> None:
    c, cpp = (" ".join([*find_compiler(language).command, FLAGS]) for language in ("c", "c++"))
    environment = {
        **os.environ,
        "CC": c,
        "CXX": cpp,
        "LD_PRELOAD": ":".join(preloaded(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")),
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    files = [str(Path(__file__).with_name(f"test_{name}.py")) for name in TESTS]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *files],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-6000:]
    assert "runtime error" not in run.stderr
