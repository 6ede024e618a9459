"""What a compilation read: recorded from the compiler's own list, verified at each look-up."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oneop.kernels.inputs import digest_of

# A file changed this shortly before we looked may change again without a new time stamp; its content decides instead.
_RACY_NS = 2_000_000_000
# Time stamps of files come from a clock that may be this much behind.
_CLOCK_TICK_NS = 20_000_000
_HEADER = (".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".ipp", ".cuh")
_DEEPEST = 4


@dataclass(frozen=True)
class Read:
    """One file that was read: `stamp` (size, times) is the quick check, `digest` the true one."""

    path: str
    digest: str
    stamp: tuple[int, int, int] | None  # None: too fresh to be trusted


@dataclass(frozen=True)
class Sight:
    """The names in a search folder that could hide a file that was read."""

    folder: str
    headers: bool  # all headers count: a source asks __has_include
    names: tuple[str, ...]


@dataclass(frozen=True)
class Dependencies:
    reads: tuple[Read, ...]
    sights: tuple[Sight, ...]

    def still_true(self) -> bool:
        """Nothing that was read has changed, and nothing new would be read in its place."""
        if not all(_unchanged(read) for read in self.reads):
            return False
        parts = _parts(read.path for read in self.reads)
        return all(_names(Path(sight.folder), parts, sight.headers) == sight.names for sight in self.sights)

    def digest(self) -> str:
        """Tells apart the builds of one key."""
        content = (
            [(read.path, read.digest) for read in self.reads],
            [(s.folder, s.headers, s.names) for s in self.sights],
        )
        return hashlib.sha256(repr(content).encode("utf-8", "surrogateescape")).hexdigest()

    def as_json(self) -> dict[str, object]:
        return {
            "reads": [[read.path, read.digest, read.stamp] for read in self.reads],
            "sights": [[sight.folder, sight.headers, sight.names] for sight in self.sights],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, list[list[object]]]) -> "Dependencies":
        """Reads what `as_json` gave; ValueError, KeyError or TypeError where it is damaged."""
        reads = tuple(Read(_text(p), _text(d), _stamp_from(s)) for p, d, s in data["reads"])
        sights = tuple(Sight(_text(f), bool(h), tuple(_texts(n))) for f, h, n in data["sights"])
        return cls(reads, sights)


def record(
    paths: Iterable[Path], search: Sequence[Path], began_ns: int, known: Mapping[str, str]
) -> tuple[Dependencies, bool]:
    """What was read, and whether that is certainly what is there now: a file may be edited while it is compiled.

    Compiling began at `began_ns`; `known` gives digests that were taken before. `search`: the folders that people's
    own files were looked for in.
    """
    unique = sorted({str(path) for path in paths})
    looked = [_read(path, began_ns) for path in unique]
    settled = all(_is_settled(read, newest, began_ns, known) for read, newest in looked)
    parts = _parts(unique)
    asks = any(_asks_has_include(Path(path), search) for path in unique)
    sights = tuple(
        Sight(folder, asks, _names(Path(folder), parts, asks)) for folder in sorted({str(f) for f in search})
    )
    return Dependencies(tuple(read for read, _ in looked), sights), settled


def parse_depfile(text: str, folder: Path) -> list[Path]:
    """The files named by a rule that `-MD` wrote; relative ones are in `folder`."""
    body = text.replace("\\\n", " ").replace("\\\r\n", " ")
    _, _, files = body.partition(": ")
    words = re.findall(r"(?:\\[ #]|\$\$|[^\s])+", files)
    return [folder / re.sub(r"\\([ #])", r"\1", word).replace("$$", "$") for word in words]


def _read(path: str, began_ns: int) -> tuple[Read, int]:
    stat = os.stat(path)
    newest = max(stat.st_mtime_ns, stat.st_ctime_ns)
    return Read(path, digest_of(path), None if newest > began_ns - _RACY_NS else _stamp(stat)), newest


def _is_settled(read: Read, newest: int, began_ns: int, known: Mapping[str, str]) -> bool:
    if read.path in known:
        return known[read.path] == read.digest
    return newest < began_ns - _CLOCK_TICK_NS


def _unchanged(read: Read) -> bool:
    try:
        if read.stamp is not None and _stamp(os.stat(read.path)) == read.stamp:
            return True
        return digest_of(read.path) == read.digest
    except OSError:
        return False


def _stamp(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _parts(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(part for path in paths for part in path.split("/"))


def _names(folder: Path, parts: frozenset[str], headers: bool) -> tuple[str, ...]:
    return tuple(sorted(_walk(str(folder), "", parts, headers, _DEEPEST)))


def _walk(folder: str, prefix: str, parts: frozenset[str], headers: bool, deep: int) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name in parts or (headers and entry.name.endswith(_HEADER))]
    except OSError:  # not there (yet): that is its list of names
        return
    for entry in found:
        yield prefix + entry.name
        if deep and entry.is_dir():
            yield from _walk(entry.path, f"{prefix}{entry.name}/", parts, headers, deep - 1)


def _asks_has_include(path: Path, search: Sequence[Path]) -> bool:
    # Only people's own files: the system's headers ask as well, but about the system's headers.
    if not any(path.is_relative_to(folder) for folder in search):
        return False
    return b"__has_include" in path.read_bytes()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return [_text(item) for item in value]


def _stamp_from(value: object) -> tuple[int, int, int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3 or not all(isinstance(item, int) for item in value):
        raise TypeError(f"{value!r} is not a stamp")
    return value[0], value[1], value[2]
