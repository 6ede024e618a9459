"""The rows that the driver fills: their names, and what a failure of each usually means."""

from typing import Literal

COLUMN = "kernel outside Python"

VALUES = "values"
STRAY = "stray writes"
INPUTS = "inputs unchanged"
UNINITIALISED = "uninitialised memory"
DETERMINISM = "determinism"
THREADS = "threads"
CALLERS = "concurrent callers"
ALIGNMENT = "alignment"
MEMORY = "memory"
CRASHES = "crashes"
ADDRESS = "AddressSanitizer, UndefinedBehaviorSanitizer"
RACES = "ThreadSanitizer"

ROWS = (
    CRASHES,
    VALUES,
    STRAY,
    INPUTS,
    UNINITIALISED,
    DETERMINISM,
    THREADS,
    CALLERS,
    ALIGNMENT,
    MEMORY,
)
"""Without a sanitizer, in the order of the table."""

PATTERNS = {
    STRAY: "A loop that runs one step too far, or sizes that were taken from the wrong dimension.",
    INPUTS: "The kernel works in place, or writes through a view of an input that lost its const.",
    UNINITIALISED: "A sum that is not set to 0 first, an element that no branch writes, or a read beyond an input.",
    DETERMINISM: "A state that outlives the call: a static variable, a random generator.",
    THREADS: "Pieces of parallel_for that write to the same place, or that need another piece to have run before.",
    CALLERS: "A static or global buffer that all calls share. Keep such memory in the call: ctx.scratch.",
    ALIGNMENT: "A load that assumes 16 or 32 bytes of alignment; a slice of a tensor has that of its elements only.",
    MEMORY: "Memory from malloc or new that is not given back. ctx.scratch is given back by the runtime.",
    CRASHES: "An index outside its tensor, a division by a size of 0, or a recursion that does not end.",
    ADDRESS: "An index outside its tensor, or arithmetic that C leaves undefined.",
    RACES: "Pieces of parallel_for that write to the same place. Let each have its own, and combine them afterwards.",
}

HANGS = "A loop whose end is never reached, or threads that wait for each other."
"""The pattern of a kernel that does not return, which is no crash."""

SANITIZERS: dict[str, Literal["address", "thread"]] = {ADDRESS: "address", RACES: "thread"}


def of(sanitizer: str | None) -> tuple[str, ...]:
    """The rows of one run."""
    return ROWS if sanitizer is None else (ADDRESS,) if sanitizer == "address" else (RACES,)
