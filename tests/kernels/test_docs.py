"""docs/kernels.md: the example that stands there whole is built and run."""

import re
from pathlib import Path

import torch

from oneop.kernels.building import build
from oneop.kernels.library import kernel_library
from oneop.registry import load_file

TEXT = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text(encoding="utf-8")


def test_the_example_in_c(tmp_path: Path) -> None:
    files = dict(re.findall(r"<!-- file: ([\w.]+) -->\n```\w+\n(.*?)```\n", TEXT, re.DOTALL))
    assert list(files) == ["twice.py", "twice.c"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (twice,) = load_file(tmp_path / "twice.py")
    assert build(kernel_library([twice.kernel_spec()])).exists()
    x = torch.randn(5)
    torch.testing.assert_close(twice(x), 2 * x)
