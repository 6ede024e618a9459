"""Which GPUs the code in a library is for: read from the file itself, since not every toolkit has cuobjdump."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_BLOCK = struct.Struct("<IHHQ")  # magic, version, size of this header, size of what follows
_MAGIC = 0xBA55ED50
_ENTRY = struct.Struct("<HHIQIIHHI")  # kind, -, size of this header, size of the code, -, -, minor, major, architecture
_KINDS: dict[int, Literal["ptx", "elf"]] = {1: "ptx", 2: "elf"}


@dataclass(frozen=True)
class Code:
    """Machine code ("elf") for one architecture, or code that the driver translates ("ptx") from that one on."""

    kind: Literal["ptx", "elf"]
    architecture: int


def codes_in(library: Path) -> list[Code]:
    """All that nvcc put into a library, in order."""
    data = library.read_bytes()
    found: list[Code] = []
    at = data.find(_MAGIC.to_bytes(4, "little"))
    while at >= 0:
        _, _, header, size = _BLOCK.unpack_from(data, at)
        entry, end = at + header, at + header + size
        if header != _BLOCK.size or end > len(data):
            end = at + 4  # the magic number, by chance or in code that looks for it
        while entry + _ENTRY.size <= end:
            kind, _, own, length, _, _, _, _, architecture = _ENTRY.unpack_from(data, entry)
            if kind not in _KINDS:
                break
            found.append(Code(_KINDS[kind], architecture))
            entry += own + length
        at = data.find(_MAGIC.to_bytes(4, "little"), end)
    return found
