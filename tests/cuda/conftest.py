"""Lets the tests find their helpers, and the operators of the tests of a machine with a GPU."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "gpu")]
