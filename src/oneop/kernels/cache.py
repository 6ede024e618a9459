"""The cache of built libraries: entries appear whole, by a rename, and are verified when they are looked up.

<root>/entries/<stem>-<key>/<variant>/   lib<stem>.so, its sources, entry.json; a variant for each state of the headers
<root>/building/<stem>-<key>.<random>/   what a builder works in; renamed when finished, swept when its builder is dead
<root>/locks/<stem>-<key>.lock           held while building
<root>/failed/<stem>-<key>.log           all that the compiler said
<root>/compilers/                        versions of compilers, see compilers.py
"""

import contextlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from oneop.kernels import locks
from oneop.kernels.dependencies import Dependencies
from oneop.kernels.inputs import digest_of

_FORMAT = 2
_ENTRY = "entry.json"
_FULL_BELOW = 1 << 20  # bytes
_KEPT_LOGS = 50


class Cache:
    """One cache folder. Nothing is created before something is built."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.compilers = root / "compilers"

    def lookup(self, slot: str, library: str) -> Path | None:
        """The library of an entry whose files are whole and whose dependencies are as they were."""
        try:
            variants = sorted(os.scandir(self.root / "entries" / slot), key=lambda entry: entry.name)
        except OSError:
            return None
        for variant in variants:
            if _is_valid(Path(variant.path), library):
                return Path(variant.path, library)
        return None

    def lock_path(self, slot: str) -> Path:
        return self._folder("locks") / f"{slot}.lock"

    def workplace(self, slot: str) -> Path:
        """A fresh folder to build in. The caller holds the slot's lock."""
        building = self._folder("building")
        self._sweep(building, slot)
        return Path(tempfile.mkdtemp(prefix=f"{slot}.", dir=building))

    def publish(
        self, workplace: Path, slot: str, library: str, dependencies: Dependencies, about: dict[str, object]
    ) -> Path:
        """Make the finished workplace an entry. The caller holds the slot's lock."""
        files = {library: digest_of(workplace / library)}
        content = {"format": _FORMAT, "files": files, "dependencies": dependencies.as_json(), **about}
        (workplace / _ENTRY).write_text(json.dumps(content), encoding="utf-8")
        entry = self._folder("entries", slot) / dependencies.digest()[:32]
        if entry.exists():
            # It is damaged, or it would have been found. Somebody may have it loaded, which a rename allows.
            entry.rename(workplace.with_name(f"{workplace.name}.old"))
        workplace.rename(entry)
        remove(workplace.with_name(f"{workplace.name}.old"))
        return entry / library

    def keep_log(self, slot: str, output: bytes) -> Path | None:
        """Keep what a failed compiler said; None where even that cannot be written."""
        try:
            path = self._folder("failed") / f"{slot}.log"
            path.write_bytes(output)
            _keep_newest(path.parent)
        except OSError:
            return None
        return path

    def is_full(self) -> bool:
        """A compiler that meets a full disk dies in many ways; this is how we know."""
        try:
            return shutil.disk_usage(self.root).free < _FULL_BELOW
        except OSError:
            return False

    def _folder(self, *names: str) -> Path:
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)  # libraries that we load: nobody else writes here
        folder = self.root.joinpath(*names)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _sweep(self, building: Path, mine: str) -> None:
        """Remove what dead builders left: a builder that lives holds the lock of its slot."""
        for entry in os.scandir(building):
            slot = entry.name.partition(".")[0]
            if slot == mine:
                remove(Path(entry.path))
                continue
            path = self.lock_path(slot)
            descriptor = locks.try_lock(path)
            if descriptor is not None:
                remove(Path(entry.path))
                locks.unlock(path, descriptor)


def cache_root(given: Path | None = None) -> Path:
    """Where libraries are kept: `given`, else $ONEOP_CACHE, else the user's cache folder."""
    if given is not None:
        return Path(os.path.abspath(given))
    from_environment = os.environ.get("ONEOP_CACHE", "")
    if from_environment:
        return Path(os.path.abspath(os.path.expanduser(from_environment)))
    import platformdirs  # here: it costs 10 ms, and a set ONEOP_CACHE needs none of it

    return Path(platformdirs.user_cache_dir("oneop"))


def slot_name(stem: str, key: str) -> str:
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', stem)[:60]}-{key[:40]}"


def remove(folder: Path) -> None:
    # Compilers of a dead builder may still write there while we delete; what is left is swept by the next build.
    shutil.rmtree(folder, ignore_errors=True)


def _keep_newest(folder: Path) -> None:
    logs = sorted(folder.iterdir(), key=lambda log: log.stat().st_mtime_ns)
    for log in logs[:-_KEPT_LOGS]:
        log.unlink(missing_ok=True)


def _is_valid(variant: Path, library: str) -> bool:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged: not an entry
        content = json.loads((variant / _ENTRY).read_bytes())
        if content["format"] != _FORMAT or not Dependencies.from_json(content["dependencies"]).still_true():
            return False
        # The whole content: a library with one wrong byte ends the process. It takes 1 ms for each megabyte or two.
        return bool(content["files"].get(library) == digest_of(variant / library))
    return False
