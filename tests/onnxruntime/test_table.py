"""The generated table: golden text, so that a change shows in review, and values that C has to take as they are."""

import math
import os
import subprocess
from pathlib import Path

import pytest

from oneop.kernels.building import find_compiler
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


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (table._c_double(0.1), 0.1),
        (table._c_double(-1e300), -1e300),
        (table._c_double(5e-324), 5e-324),
        (table._c_double(math.inf), math.inf),
        (table._c_double(-math.inf), -math.inf),
        (table._c_int(-(2**63)), -(2**63)),
        (table._c_int(2**63 - 1), 2**63 - 1),
    ],
)
def test_numbers(tmp_path: Path, value: str, expected: float) -> None:
    kind, form = ("double", "%.17g") if isinstance(expected, float) else ("long long", "%lld")
    headers = "#include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n"
    (tmp_path / "m.c").write_text(f'{headers}int main(void) {{ printf("{form}", ({kind}){value}); }}')
    subprocess.run([*find_compiler("c").command, "-std=c11", tmp_path / "m.c", "-o", tmp_path / "m"], check=True)
    printed = subprocess.run([tmp_path / "m"], capture_output=True, text=True, check=True).stdout
    assert type(expected)(printed) == expected


@pytest.mark.parametrize("text", ["", 'a "quoted" \\ text', "trigraph ??/", "line\nbreak", "ünicode", "a\0b1"])
def test_strings(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.c").write_text(
        f"#include <stdio.h>\nint main(void) {{ fwrite({table._c_string(text)}, 1, {len(text.encode())}, stdout); }}"
    )
    subprocess.run([*find_compiler("c").command, "-std=c11", tmp_path / "m.c", "-o", tmp_path / "m"], check=True)
    assert subprocess.run([tmp_path / "m"], capture_output=True, check=True).stdout == text.encode()
