"""The generated table: golden text, so that a change shows in review."""

import os
from pathlib import Path

from oneop.targets.onnxruntime import table
from support.ort_models import operator

GOLDEN = Path(__file__).with_name("golden") / "table.c"


def test_golden_text() -> None:
    """ONEOP_UPDATE_GOLDEN=1 writes it anew."""
    operators = [operator(base) for base in ("affine", "totals", "windows", "labels")]
    text = table.table_source([item.definition for item in operators], 'a "library"')
    if os.environ.get("ONEOP_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
