"""Reads the reports of AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer out of what the driver said."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ADDRESS = re.compile(r"ERROR: AddressSanitizer: (?P<message>.*)")
_LEAK = re.compile(
    r"^(?:Direct|Indirect) leak of (?P<bytes>\d+) byte\(s\) in (?P<blocks>\d+) object\(s\) allocated from:"
)
_UNDEFINED = re.compile(r"^(?P<file>.+?):(?P<line>\d+):\d+: runtime error: (?P<message>.*)")
_RACE = re.compile(r"WARNING: ThreadSanitizer: (?P<message>.*?)(?: \(pid=\d+\))?$")
_ACCESS = re.compile(r"^\s*(?P<verb>READ|WRITE) of size (?P<bytes>\d+)")
_RACE_ACCESS = re.compile(
    r"^\s*(?:Previous |Atomic |Previous atomic )?(?P<verb>read|write) of size (?P<bytes>\d+)", re.I
)
_BLOCK = re.compile(
    r"is located (?P<distance>\d+) bytes (?P<side>to the right of|to the left of|after|before|inside of)"
    r" (?P<bytes>\d+)-byte"
)
_FRAME = re.compile(r"^\s*#\d+ .* (?P<file>/[^:]+):(?P<line>\d+)")
_NOISE = re.compile(r"^\s*(?:=>)?0x[0-9a-f]+:[ \[]|^Shadow bytes around|^=+$|^SUMMARY: |^AddressSanitizer:DEADLYSIGNAL")
_ADDRESSES = re.compile(
    r"^==\d+==|(?<=#\d) 0x[0-9a-f]+ in| on (?:unknown )?address 0x[0-9a-f]+.*| \(pid=\d+\)| \(BuildId: \w+\)"
)
_MOST_LINES = 40
_OWN = Path(__file__).parents[2]


@dataclass
class Report:
    """One report: what it says, the number of the case it is about, and lines of source as `file:line`."""

    kind: str  # "address", "leak", "undefined" or "race"
    message: str
    case: int | None
    lines: list[str] = field(default_factory=list)
    place: dict[str, Any] | None = None
    where: str | None = None

    def text(self, sources: Sequence[Path]) -> str:
        """What it says, without addresses, shadow bytes and the frames of our own."""
        kept = [line for line in self.lines if not _NOISE.search(line) and not _is_foreign_frame(line, sources)]
        return "\n".join(_ADDRESSES.sub("", line) for line in kept[:_MOST_LINES]).strip()

    def block(self) -> str | None:
        """Where the address lies, seen from the nearest block that malloc gave."""
        for line in self.lines:
            if match := _BLOCK.search(line):
                side = "behind the end of" if match["side"] in ("to the right of", "after") else "inside"
                side = "before the beginning of" if match["side"] in ("to the left of", "before") else side
                return f"{match['distance']} bytes {side} a block of {match['bytes']} bytes"
        return None

    def accesses(self) -> list[tuple[str, int]]:
        """What was done, each as a verb and a number of bytes."""
        found = [_ACCESS.match(line) or _RACE_ACCESS.match(line) for line in self.lines]
        return [(match["verb"].lower(), int(match["bytes"])) for match in found if match]


def reports(said: Sequence[dict[str, Any] | str]) -> list[Report]:
    """All reports, in order."""
    found: list[Report] = []
    case: int | None = None
    place: dict[str, Any] | None = None  # comes before its report, or at the end of it
    for item in said:
        if isinstance(item, dict):
            if item["event"] == "place":
                place = item
                continue
            if place is not None and found and found[-1].kind == "address" and found[-1].place is None:
                found[-1].place = place
            place = None
            if item["event"] in ("at", "end"):
                case = item.get("case")
            continue
        started = _started(item, case)
        if started is not None:
            if started.kind == "address":
                started.place, place = place, None
            found.append(started)
        elif found:
            found[-1].lines.append(item)
    return found


def _started(line: str, case: int | None) -> Report | None:
    if match := _ADDRESS.search(line):
        return Report("address", match["message"], case, [line])
    if match := _LEAK.match(line):
        return Report("leak", f"{match['bytes']} bytes in {match['blocks']} blocks", None, [line])
    if match := _UNDEFINED.match(line):
        return Report("undefined", match["message"], case, [line], where=f"{match['file']}:{match['line']}")
    if match := _RACE.search(line):
        return Report("race", match["message"], case, [line])
    return None


def user_lines(report: Report, sources: Sequence[Path]) -> list[str]:
    """The lines of a person's sources that a report is about, `path:line`: the innermost of each of its stacks.

    An overflow is about its first stack; a race about both accesses.
    """
    if report.where is not None and any(report.where.startswith(f"{source}:") for source in sources):
        return [report.where]
    found = [line for stack in _stacks(report) if (line := _innermost(stack, sources)) is not None]
    return [*dict.fromkeys(found[: 2 if report.kind == "race" else 1])]


def _stacks(report: Report) -> Iterator[list[str]]:
    stack: list[str] = []
    for line in report.lines:
        if re.match(r"^\s*#\d+ ", line):
            if re.match(r"^\s*#0 ", line) and stack:
                yield stack
                stack = []
            stack.append(line)
        elif stack:
            yield stack
            stack = []
    if stack:
        yield stack


def _innermost(stack: Sequence[str], sources: Sequence[Path]) -> str | None:
    for line in stack:
        for source in sources:
            if match := re.search(re.escape(str(source)) + r":(\d+)", line):
                return f"{source}:{match[1]}"
    for line in stack:  # a header of theirs
        match = _FRAME.match(line)
        if match and not _is_ours(match["file"]):
            return f"{match['file']}:{match['line']}"
    return None


def _is_foreign_frame(line: str, sources: Sequence[Path]) -> bool:
    """A frame that is neither in a person's source nor the first of its stack."""
    if not re.match(r"^\s*#[1-9]", line) or any(f"{source}:" in line for source in sources):
        return False
    match = _FRAME.match(line)
    return match is None or _is_ours(match["file"]) or ".unit.c" in match["file"]


def _is_ours(file: str) -> bool:
    system = ("/usr/include/", "/usr/lib/", "/lib/", "/build/")
    return file.startswith(system) or "libsanitizer" in file or Path(file).is_relative_to(_OWN)
