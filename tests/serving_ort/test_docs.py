"""docs/serving.md shows slices of files that the tests run."""

import re

import pytest
from serving_ort.cases import ROOT

TEXT = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
SLICES = re.findall(r"<!-- slice: (\S+) -->\n```\w+\n(.*?)```\n", TEXT, re.DOTALL)


@pytest.mark.parametrize(("file", "shown"), SLICES, ids=[f"{number}-{file}" for number, (file, _) in enumerate(SLICES)])
def test_slice(file: str, shown: str) -> None:
    assert shown in (ROOT / file).read_text(encoding="utf-8")


def test_there_are_slices() -> None:
    assert len(SLICES) == TEXT.count("<!-- slice:") == 4
