"""Kernels that do not build: the compiler runs once, its message stands once, and nothing is looked at."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from oneop import registry
from oneop.check.console import print_report
from oneop.check.native import rows
from oneop.check.running import UNBUILT, check


def test_it_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "unbuilt.py").write_text(
        "import oneop\nfrom jaxtyping import Float\nfrom torch import Tensor\n\n"
        '@oneop.op("unbuilt::one", kernels=["one.cpp"])\n'
        'def one(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:\n    return x + 1\n'
    )
    (tmp_path / "one.cpp").write_text('#include "one.h"\nnot C++\n')
    (operator,) = registry.load_file(tmp_path / "unbuilt.py")
    report = check(operator, quick=True, sanitizers=["address"])
    assert capfd.readouterr().err.count("building the kernels of one.cpp") == 1
    assert {result.reason for result in report.results if result.column == rows.COLUMN} == {UNBUILT}
    eager = report.result("values", "PyTorch eager")
    assert eager is not None
    assert eager.finding is not None
    assert eager.finding.summary.startswith("raised BuildError: cannot build the kernels of one.cpp: ")
    body = report.result("values", "ONNX Runtime, function body")
    assert body is not None
    assert (body.status, body.reason) == ("skipped", UNBUILT)
    written = io.StringIO()
    print_report(report, Console(file=written, width=120))
    assert written.getvalue().count("FAILED unbuilt::one") == 1
