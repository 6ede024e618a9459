"""Values that C and C++ have to take as they are."""

import math
import subprocess
from pathlib import Path

import pytest

from oneop.kernels.building import find_compiler
from oneop.kernels.literals import c_double, c_int64, c_string

NUMBERS = [0.1, -0.0, -1e300, 5e-324, math.inf, -math.inf, math.nan, -(2**63), 2**63 - 1, 0]
LANGUAGES = [("c", "-std=c11", "value.c"), ("c++", "-std=c++17", "value.cpp")]


def printed(language: str, standard: str, source: Path, statement: str) -> bytes:
    source.write_text(
        f"#include <math.h>\n#include <stdint.h>\n#include <stdio.h>\nint main(void) {{ {statement} return 0; }}\n"
    )
    program = source.with_suffix("")
    warnings = ("-Wall", "-Wextra", "-Werror")
    subprocess.run([*find_compiler(language).command, standard, *warnings, source, "-o", program], check=True)
    return subprocess.run([program], capture_output=True, check=True).stdout


@pytest.mark.parametrize(("language", "standard", "name"), LANGUAGES)
def test_numbers(tmp_path: Path, language: str, standard: str, name: str) -> None:
    statement = " ".join(
        f'printf("%.17g\\n", (double){c_double(value)});'
        if isinstance(value, float)
        else f'printf("%lld\\n", (long long){c_int64(value)});'
        for value in NUMBERS
    )
    found = printed(language, standard, tmp_path / name, statement).decode().split()
    for value, text in zip(NUMBERS, found, strict=True):
        again = type(value)(text)
        assert again == value or (math.isnan(again) and math.isnan(value))
        assert math.copysign(1, again) == math.copysign(1, value) or math.isnan(value)


@pytest.mark.parametrize(("language", "standard", "name"), LANGUAGES)
@pytest.mark.parametrize("text", ["", 'a "quoted" \\ text', "trigraph ??/", "line\nbreak", "ünicode", "a\0b1"])
def test_strings(tmp_path: Path, text: str, language: str, standard: str, name: str) -> None:
    statement = f"fwrite({c_string(text)}, 1, {len(text.encode())}, stdout);"
    assert printed(language, standard, tmp_path / name, statement) == text.encode()
