"""Protobuf's wire format, as far as ONNX files need it: where each field stands. Nothing is copied, nothing recurses.

Written for files of unknown origin: every length is checked, and ``Wire`` stops after ``MOST_FIELDS`` fields.
"""

import mmap
from collections.abc import Iterator
from typing import TypeAlias

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_FIELDS = 50_000_000
"""A model of a million nodes has some fifteen million."""

Content: TypeAlias = "bytes | mmap.mmap | memoryview"
Span: TypeAlias = tuple[int, int]
"""Where a message begins and where it ends."""


class WireError(ValueError):
    """The content is not what protobuf writes."""


class Wire:
    """The content of one file."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.left = MOST_FIELDS

    def __len__(self) -> int:
        return len(self.content)

    def fields(self, span: Span) -> Iterator[tuple[int, int, int, int]]:
        """Number, wire type and place of each field of a message: begin and end, or a varint's value and its end."""
        content, (at, end) = self.content, span
        while at < end:
            tag = content[at]
            at += 1
            if tag > 127:
                tag, at = self._varint(at - 1, end)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                raise WireError("a field with the number 0")
            self.left -= 1
            if self.left < 0:
                raise WireError(f"more than {MOST_FIELDS:,} fields")
            if kind == BYTES:
                if at < end and (size := content[at]) < 128:
                    at += 1
                else:
                    size, at = self._varint(at, end)
                stop = at + size
                if stop > end:
                    raise WireError("a field ends behind its message")
                yield number, BYTES, at, stop
                at = stop
            elif kind == VARINT:
                value, at = self._varint(at, end)
                yield number, VARINT, value, at
            elif kind in (FIXED64, FIXED32):
                stop = at + (8 if kind == FIXED64 else 4)
                if stop > end:
                    raise WireError("a field ends behind its message")
                yield number, kind, at, stop
                at = stop
            else:
                raise WireError(f"a field of wire type {kind}")

    def varints(self, span: Span) -> Iterator[int]:
        """The numbers of a packed field."""
        at, end = span
        while at < end:
            value, at = self._varint(at, end)
            yield value

    def bytes(self, span: Span) -> bytes:
        return bytes(self.content[span[0] : span[1]])

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        content = self.content
        while at < end:
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & (2**64 - 1), at
            shift += 7
            if shift > 63:
                raise WireError("a number of more than 64 bits")
        raise WireError("a field ends behind its message")


def signed(value: int) -> int:
    """A varint as the int64 that it stands for."""
    return value - 2**64 if value >= 2**63 else value
