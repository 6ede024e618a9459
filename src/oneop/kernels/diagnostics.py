"""From what a compiler or linker printed to what a person needs: their own file and line first, our glue last."""

import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_MOST_LINES = 40
_LOCATED = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+)(?::\d+)?: *(?P<rest>.*)$")
_KIND = re.compile(r"^(?P<kind>(?:fatal )?error|warning|note|remark)\b")
_INCLUDED = re.compile(r"^(?:In file included|\s+) from (?P<file>[^:\n]+):\d+")
_WITHIN = re.compile(r"^(?P<file>[^\s:][^:\n]*): (?:In |At )")
_PROGRAM_ERROR = re.compile(r"^[^\s:]+: (?:fatal )?error: |^nvcc (?:fatal|error) +: |^ptxas (?:fatal|error) +: ")
# nvcc says `file(12): error: ...`, with a number behind some kinds: `warning #177-D: ...`.
_OF_NVCC = re.compile(
    r"^(?P<file>\S[^\n]*?)\((?P<line>\d+)\): (?:catastrophic )?(?P<kind>error|warning)(?: #[\w-]+)?: ", re.MULTILINE
)
_ENDING = re.compile(r"^(?:\d+ (?:error|warning)s?\b|compilation terminated|make)")
_KILLED = re.compile(
    r"(?P<gcc>[A-Z][\w ]*?) signal terminated program|terminated with signal (?P<number>\d+)"
    r"|unable to execute command: (?P<clang>[A-Z][\w ]+)|internal compiler error: (?P<ice>Killed)"
)
_UNDEFINED = re.compile(
    r"undefined reference to [`'](?P<gnu>[^'`\n]+)'|undefined symbol: (?P<lld>[^\n]+)"
    r"|^  \"(?P<apple>[^\"]+)\", referenced",
    re.MULTILINE,
)
# GCC, then Clang; nvcc has the host's compiler read the headers first.
_NO_HEADER = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):\d+:\d+: fatal error: (?:[^:\n]+: No such file or directory|'[^'\n]+' file not found)$",
    re.MULTILINE,
)
_NO_ROOM = re.compile(r"^.*(?:No space left on device|Disk quota exceeded|Read-only file system)", re.MULTILINE)


@dataclass(frozen=True)
class Places:
    """Whose a file is. What is neither ours nor the user's belongs to the system."""

    glue: tuple[Path, ...]  # generated sources and the headers that oneop brings
    people: tuple[Path, ...]

    def is_glue(self, name: str) -> bool:
        return not name.startswith(("/", "<")) or any(Path(name).is_relative_to(folder) for folder in self.glue)

    def is_peoples(self, name: str) -> bool:
        return not self.is_glue(name) and any(Path(name).is_relative_to(folder) for folder in self.people)


@dataclass
class _Block:
    """One diagnostic: the lines that lead to it, itself, its source snippet and its notes."""

    kind: str = ""
    lines: list[str] = field(default_factory=list)
    is_peoples: bool = False


def compile_report(output: str, places: Places) -> str:
    """The errors in `output`, the user's before ours, at most 40 lines."""
    blocks = _blocks(_as_gcc(output).splitlines(), places)
    for block in blocks:
        _put_people_first(block, places)
    errors = [block for block in blocks if "error" in block.kind] or blocks
    ordered = sorted(errors, key=lambda block: not block.is_peoples)
    lines = [line for block in ordered for line in block.lines]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], f"... and {len(lines) - _MOST_LINES + 1} lines more"]
    return "\n".join(lines)


def blames_people(output: str, places: Places) -> bool:
    """Whether an error stands in a person's own file."""
    errors = (line for line in _as_gcc(output).splitlines() if "error" in (_kind(line) or ""))
    located = (match for line in errors if (match := _LOCATED.match(line)))
    return any(places.is_peoples(match["file"]) for match in located)


def misses_header(output: str, places: Places) -> bool:
    """Whether a person's own file includes one that is not there."""
    return any(places.is_peoples(match["file"]) for match in _NO_HEADER.finditer(output))


def link_report(output: str) -> str:
    """The lines of a linker that tell what went wrong."""
    telling = [
        line for line in output.splitlines() if re.search(r"error|cannot find|not found|undefined|multiple", line)
    ]
    return "\n".join((telling or output.splitlines())[:_MOST_LINES])


def killed_by(code: int, output: str) -> int | None:
    """The number of the signal that ended the compiler or one of its children."""
    if code < 0:
        return -code
    match = _KILLED.search(output)
    if match is None:
        return None
    if match["number"]:
        return int(match["number"])
    name = match["gcc"] or match["clang"] or match["ice"]
    known = [(int(number), signal.strsignal(number)) for number in signal.valid_signals()]
    return next((number for number, text in known if text and name.startswith(text)), None)


def undefined_symbols(output: str) -> list[str]:
    """The symbols a linker did not find, readable, each once."""
    names = (match["gnu"] or match["lld"] or match["apple"] for match in _UNDEFINED.finditer(output))
    return _demangled(list(dict.fromkeys(name.strip() for name in names)))


def disk_reason(output: str) -> str | None:
    """The words of a compiler that could not write."""
    match = _NO_ROOM.search(output)
    return match.group().strip() if match else None


def _as_gcc(output: str) -> str:
    return _OF_NVCC.sub(r"\g<file>:\g<line>: \g<kind>: ", output)


def _blocks(lines: Sequence[str], places: Places) -> list[_Block]:
    blocks: list[_Block] = []
    leading: list[str] = []  # "In file included from", "In function": they come before what they are about
    skipping = False  # after a line about glue that is left out, its snippet is too
    for line in lines:
        kind = _kind(line)
        is_glue = places.is_glue(_file(line) or "/")
        if kind and (kind != "note" or not blocks):
            blocks.append(_Block(kind, [*leading, line]))
            leading, skipping = [], False
        elif _PROGRAM_ERROR.match(line):
            blocks.append(_Block("error", [line]))
            leading, skipping = [], False
        elif kind or _file(line) is not None:
            skipping = is_glue
            target = blocks[-1].lines if kind else leading
            if kind:
                target.extend(leading)
                leading = []
            if not is_glue:
                target.append(line)
        elif not skipping and not _ENDING.match(line):
            (leading or (blocks[-1].lines if blocks else leading)).append(line)
    return blocks or [_Block(lines=leading)]


def _put_people_first(block: _Block, places: Places) -> None:
    located = [match for line in block.lines if (match := _LOCATED.match(line)) and places.is_peoples(match["file"])]
    block.is_peoples = bool(located)
    main = next((_file(line) for line in block.lines if _kind(line)), None)
    if located and not places.is_peoples(main or ""):
        block.lines.insert(0, f"{located[0]['file']}:{located[0]['line']}: this leads to")


def _kind(line: str) -> str | None:
    located = _LOCATED.match(line)
    kind = _KIND.match(located["rest"]) if located else None
    return kind["kind"] if kind else None


def _file(line: str) -> str | None:
    """The file that a line is about, where it is no source snippet."""
    match = _INCLUDED.match(line) or _WITHIN.match(line) or _LOCATED.match(line)
    return match["file"].strip() if match else None


def _demangled(names: list[str]) -> list[str]:
    tool = shutil.which("c++filt")
    if tool is None or not names:
        return names
    answer = subprocess.run([tool, *names], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    readable = answer.stdout.decode("utf-8", "replace").splitlines()
    return readable if len(readable) == len(names) else names
