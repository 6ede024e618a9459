"""What a shared library of Linux needs: other libraries, and versions of their symbols, from its dynamic section."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian: every machine that oneop builds for
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS, _VERSIONS, _VERSION_COUNT = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF


@dataclass
class Needs:
    """``libraries`` by the name that the loader looks for; ``versions`` such as ``GLIBC_2.34``."""

    libraries: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)


def needs_of(path: Path) -> Needs | None:
    """None where the file is no library of 64-bit Linux."""
    content = path.read_bytes()
    return _Elf(content).needs() if content.startswith(_MAGIC) else None


class _Elf:
    def __init__(self, content: bytes) -> None:
        self.content = content
        (offset,) = struct.unpack_from("<Q", content, 32)
        size, count = struct.unpack_from("<HH", content, 54)
        self.segments: list[tuple[int, ...]] = [
            struct.unpack_from("<IIQQQQ", content, offset + size * index) for index in range(count)
        ]

    def needs(self) -> Needs:
        entries = list(self._dynamic())
        places = {tag: self._offset(value) for tag, value in entries if tag in (_STRINGS, _VERSIONS)}
        found = Needs()
        if _STRINGS not in places:
            return found
        strings = places[_STRINGS]
        found.libraries = [self._text(strings + value) for tag, value in entries if tag == _NEEDED]
        counts = [value for tag, value in entries if tag == _VERSION_COUNT]
        if _VERSIONS in places and counts:
            found.versions = list(self._versions(places[_VERSIONS], counts[0], strings))
        return found

    def _dynamic(self) -> Iterator[tuple[int, int]]:
        for kind, _, offset, _, _, size in self.segments:
            if kind == _DYNAMIC:
                for at in range(offset, offset + size, 16):
                    yield struct.unpack_from("<qQ", self.content, at)

    def _versions(self, at: int, count: int, strings: int) -> Iterator[str]:
        for _ in range(count):
            _, symbols, _, first, following = struct.unpack_from("<HHIII", self.content, at)
            inner = at + first
            for _ in range(symbols):
                _, _, _, name, step = struct.unpack_from("<IHHII", self.content, inner)
                yield self._text(strings + name)
                inner += step
            at += following

    def _offset(self, address: int) -> int:
        for kind, _, offset, start, _, size in self.segments:
            if kind == _LOAD and start <= address < start + size:
                return offset + address - start
        return address

    def _text(self, at: int) -> str:
        return self.content[at : self.content.index(b"\0", at)].decode()
