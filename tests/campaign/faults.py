"""The seeded faults of faults.diff: each a small change to a correct operator, and the row that has to catch it."""

import re
from dataclasses import dataclass
from pathlib import Path

TEXT = Path(__file__).with_name("faults.diff")
WAYS = ("here", "here, in ONNX Runtime, function body", "outside Python", "--sanitize", "--threads")
"""How a row is asked: in this process, in the eager column or another; by the driver, without and with a sanitizer."""


@dataclass(frozen=True)
class Edit:
    """One hunk: lines that stand once in the file, and what stands there instead."""

    file: str
    before: str
    after: str


@dataclass(frozen=True)
class Fault:
    number: int
    title: str
    row: str
    way: str
    edits: tuple[Edit, ...]

    @property
    def operator(self) -> str:
        return Path(self.edits[0].file).stem

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(edit.file for edit in self.edits))


def read(text: str) -> tuple[Fault, ...]:
    """Faults stand apart by an empty line; each has three lines of comment, then unified diffs."""
    return tuple(_fault(number, block) for number, block in enumerate(text.strip("\n").split("\n\n# "), 1))


def _fault(number: int, block: str) -> Fault:
    match = re.fullmatch(r"(?:# )?([^\n]*)\n# caught by: ([^\n]*)\n# asked: ([^\n]*)\n(---.*)", block, re.S)
    assert match is not None, block
    title, row, way, diff = match.groups()
    assert way in WAYS, way
    edits: list[Edit] = []
    for part in re.split(r"^--- ", diff, flags=re.M)[1:]:
        names, *hunks = re.split(r"^@@.*@@\n", part, flags=re.M)
        edits += [_edit(names.splitlines()[0], hunk) for hunk in hunks]
    return Fault(number, title, row, way, tuple(edits))


def _edit(file: str, hunk: str) -> Edit:
    lines = hunk.rstrip("\n").split("\n")
    assert all(line[:1] in (" ", "-", "+") for line in lines), hunk
    before = [line[1:] for line in lines if line[0] != "+"]
    after = [line[1:] for line in lines if line[0] != "-"]
    return Edit(file, "".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after))


FAULTS = read(TEXT.read_text())
