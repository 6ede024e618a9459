"""docs/tensorrt.md says what the code does."""

import ast
import re
from pathlib import Path

from oneop.targets.plugins import NODE_ATTRIBUTES, PLUGIN_NAMESPACE, PLUGIN_VERSION
from oneop.targets.tensorrt.checks import MAX_DIMS
from oneop.targets.tensorrt.dtypes import SUPPORTED
from oneop.targets.tensorrt.headers import OLDEST
from oneop.targets.tensorrt.library import WORKSPACE
from oneop.targets.tensorrt.sources import SUPPORT

TEXT = (Path(__file__).parents[2] / "docs" / "tensorrt.md").read_text(encoding="utf-8")
PROSE = " ".join(re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL).split())


def test_it_names_what_the_tables_hold() -> None:
    names = [dtype.name for dtype in SUPPORTED]
    assert f"**Dtypes**: {', '.join(names[:-1])} and {names[-1]}, in linear format" in PROSE
    assert f"A tensor has {MAX_DIMS} dimensions at most." in PROSE
    assert f"TensorRT {OLDEST[0]}.{OLDEST[1]} or newer" in PROSE
    assert WORKSPACE == 1 << 20
    assert "the plugin's workspace, 1 MiB" in PROSE
    assert all(f"`{name}`" in PROSE for name in (*NODE_ATTRIBUTES, *SUPPORT))
    assert f'`plugin_version` ("{PLUGIN_VERSION}") and `plugin_namespace` ("{PLUGIN_NAMESPACE}")' in PROSE


def test_its_python_is_python() -> None:
    code = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(code) == 3
    for block in code:
        ast.parse(block)
