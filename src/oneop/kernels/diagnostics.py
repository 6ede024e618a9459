"""From what a compiler or linker printed to what a person needs: their own file and line first, our glue last."""

import re
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

_MOST_LINES = 40
_LOCATED = re.compile(r"^(?P<file>(?:[A-Za-z]:)?[^\s:][^:\n]*):(?P<line>\d+)(?::\d+)?: *(?P<rest>.*)$")
_KIND = re.compile(r"^(?P<kind>fatal error|error|warning|note|remark)\b")
_INCLUDED = re.compile(r"^(?:In file included|\s+) from (?P<file>[^:\n]+):\d+")
_WITHIN = re.compile(r"^(?P<file>[^\s:][^:\n]*): (?:In |At )")
_KILLED = re.compile(
    r"(?P<what>[A-Z][\w ]*?) signal terminated program|terminated with signal (?P<number>\d+)"
    r"|unable to execute command: (?P<clang>[A-Z][\w ]+)|internal compiler error: (?P<ice>Killed)"
)
_UNDEFINED = re.compile(
    r"undefined reference to [`'](?P<gnu>[^'`\n]+)'|undefined symbol: (?P<lld>[^\n]+)|^  \"(?P<apple>[^\"]+)\", referenced",
    re.M,
)
_NO_ROOM = re.compile(r"^.*(?:No space left on device|Disk quota exceeded|Read-only file system)", re.M)


@dataclass
class _Block:
    """One diagnostic: the lines that lead to it, itself, its source snippet and its notes."""

    kind: str = ""
    mine: bool = False  # it is about the user's file, or is reached from it
    lines: list[str] = field(default_factory=list)


def compile_report(output: str, glue: Path) -> str:
    """The errors in `output`, at most 40 lines; files in the folder `glue` are ours."""
    blocks = [block for block in _blocks(output, glue) if block.lines]
    errors = [block for block in blocks if "error" in block.kind] or blocks
    ordered = [block for block in errors if block.mine] + [block for block in errors if not block.mine]
    lines = [line for block in ordered for line in block.lines]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], f"... ({len(lines) - _MOST_LINES + 1} more lines)"]
    return "\n".join(lines)


def killed_by(code: int, output: str) -> int | None:
    """The number of the signal that ended the compiler or one of its children."""
    if code < 0:
        return -code
    match = _KILLED.search(output)
    if match is None:
        return None
    if match["number"]:
        return int(match["number"])
    name = match["what"] or match["clang"] or match["ice"]
    numbers = {signal.strsignal(number): int(number) for number in signal.valid_signals()}
    return next((number for text, number in numbers.items() if text and name.startswith(text)), None)


def undefined_symbols(output: str) -> list[str]:
    """The symbols a linker did not find, readable, each once."""
    names = dict.fromkeys(match["gnu"] or match["lld"] or match["apple"] for match in _UNDEFINED.finditer(output))
    return [_demangled(name.strip()) for name in names]


def disk_reason(output: str) -> str | None:
    """The words of a compiler that could not write."""
    match = _NO_ROOM.search(output)
    return match.group().strip() if match else None


def _blocks(output: str, glue: Path) -> list[_Block]:
    blocks: list[_Block] = []
    leading = _Block()
    skipping = False  # within a note about glue, whose snippet goes too
    for line in output.splitlines():
        located, is_glue = _LOCATED.match(line), _names_glue(line, glue)
        kind = _KIND.match(located["rest"]) if located else None
        if _INCLUDED.match(line) or _WITHIN.match(line) or (located and not kind):
            skipping = is_glue
            if not is_glue:
                leading.lines.append(line)
                leading.mine = True
        elif kind and (kind["kind"] != "note" or not blocks):
            skipping = False
            blocks.append(_Block(kind["kind"], leading.mine or not is_glue, [*leading.lines, line]))
            leading = _Block()
        elif kind:
            skipping = is_glue
            if not is_glue:
                blocks[-1].lines.extend([*leading.lines, line])
            leading = _Block()
        elif not skipping:
            _belongs_to(blocks, leading, line).lines.append(line)
    return blocks


def _belongs_to(blocks: list[_Block], leading: _Block, line: str) -> _Block:
    if leading.lines:
        return leading
    if not blocks or not line.startswith(" "):
        blocks.append(_Block("error" if "error" in line else "", False))
    return blocks[-1]


def _names_glue(line: str, glue: Path) -> bool:
    match = _INCLUDED.match(line) or _WITHIN.match(line) or _LOCATED.match(line)
    if match is None:
        return False
    file = Path(match["file"].strip())
    return not file.is_absolute() or file.is_relative_to(glue)


def _demangled(name: str) -> str:
    tool = shutil.which("c++filt")
    if tool is None or not name.lstrip("_").startswith("Z"):
        return name
    answer = subprocess.run([tool, name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    return answer.stdout.decode("utf-8", "replace").strip() or name
