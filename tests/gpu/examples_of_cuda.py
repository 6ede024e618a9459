"""The example with CUDA kernels, as a module of the tests."""

from pathlib import Path

from oneop.registry import load_file

_FILE = Path(__file__).parents[2] / "examples" / "scaled_linear_cuda" / "scaled_linear.py"

scaled_linear = next(item for item in load_file(_FILE) if item.definition.base == "scaled_linear")
