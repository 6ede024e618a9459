"""The one line that oneop says on stderr when it does something slow."""

import contextlib
import os
import sys


def say(message: str) -> None:
    """Print `message` on stderr as oneop's; ONEOP_QUIET=1 silences it."""
    if sys.stderr is None or os.environ.get("ONEOP_QUIET", "0") not in ("", "0"):
        return
    with contextlib.suppress(OSError, ValueError):  # nobody reads stderr: no reason to fail
        print(f"oneop: {message}", file=sys.stderr, flush=True)
