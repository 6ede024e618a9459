"""The example shows the faults that it says it has, and docs/epochs.md what is said of them."""

import re
from pathlib import Path

import pytest
import slow_epochs

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "epochs.md"


def test_the_example_and_its_document(capsys: pytest.CaptureFixture[str]) -> None:
    w = slow_epochs.train(epochs=5, samples=800)
    said = [f"problem: {found.summary}" for found in w.problems]
    (shown,) = re.findall(r"```text\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    # The document's is of twice as many steps.
    assert [re.sub(r"\d+ tensors", "n tensors", line) for line in said] == [
        re.sub(r"\d+ tensors", "n tensors", line) for line in shown.splitlines()
    ]
    source = Path(slow_epochs.__file__).read_text().splitlines()
    lines = [source[(found.places[0].line or 0) - 1].strip() for found in w.problems]
    assert [line.partition("(")[0].partition(" =")[0] for line in lines] == [
        "losses.append",
        "self.head.register_forward_hook",
        "ctx.y",
    ]
    assert "3 problems found: graph, hooks, ctx." in capsys.readouterr().out
