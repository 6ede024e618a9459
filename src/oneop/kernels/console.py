"""The one line that oneop says on stderr when it does something slow."""

import os
import sys


def say(message: str) -> None:
    """Print `message` on stderr as oneop's; ONEOP_QUIET=1 silences it."""
    if os.environ.get("ONEOP_QUIET", "0") in ("", "0"):
        print(f"oneop: {message}", file=sys.stderr, flush=True)
