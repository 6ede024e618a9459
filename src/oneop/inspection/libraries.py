"""Asks libraries which runtime they are for and what is in them, in a process of its own: they are programs."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oneop.definition.dtypes import DTYPES
from oneop.errors import BuildError
from oneop.inspection.judging import Library, Runtime

_ABI_VERSION = 1
_TIMEOUT = 60

# Runs alone, with the standard library only. The structures are those of oneop.h.
_PROBE = """
import ctypes, importlib, importlib.util, json, sys
path, wanted, companions, entries = sys.argv[1], int(sys.argv[2]), *map(json.loads, sys.argv[3:5])
try:
    library = ctypes.CDLL(path)
except OSError as error:
    for name in companions:
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        print(json.dumps({"error": str(error)}))
        sys.exit()
found = {"entries": [name for name in entries if hasattr(library, name)]}
if hasattr(library, "oneop_library_v1"):
    class DType(ctypes.Structure):
        _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))
    class Kernel(ctypes.Structure):
        _fields_ = (("dtypes", ctypes.POINTER(DType)), ("device", ctypes.c_int32), ("run", ctypes.c_void_p))
    class Operator(ctypes.Structure):
        _fields_ = (("name", ctypes.c_char_p), ("fingerprint", ctypes.c_char_p), ("counts", ctypes.c_int32 * 6),
                    ("shapes", ctypes.c_void_p), ("kernels", ctypes.POINTER(Kernel)))
    class Library(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("count", ctypes.c_int32), ("operators", ctypes.POINTER(Operator)))
    library.oneop_library_v1.restype = ctypes.POINTER(Library)
    table = library.oneop_library_v1().contents
    found["version"] = table.version
    if table.version == wanted:
        found["operators"] = [
            [item.name.decode(), item.fingerprint.decode(),
             [[[dtype.code, dtype.bits] for dtype in kernel.dtypes[:item.counts[4]]]
              for kernel in item.kernels[:item.counts[5]]]]
            for item in table.operators[:table.count]
        ]
print(json.dumps(found))
"""


def examine(path: Path, runtimes: Sequence[Runtime]) -> Library:
    """What is in a library. Raises BuildError where it is none, or does not load here."""

    if not path.is_file():
        raise BuildError(f"{path}: there is no such file. Give the path of a library that oneop build wrote.")
    entries = [entry for runtime in runtimes for entry in runtime.entries]
    companions = [name for runtime in runtimes for name in runtime.companions]
    found = _ask(path, entries, companions)
    if "error" in found:
        raise BuildError(
            f"{path} cannot be loaded: {found['error']}. Build it on this machine with oneop build, and have the "
            "runtime that it is for installed."
        )
    if found.get("version", _ABI_VERSION) != _ABI_VERSION:
        raise BuildError(
            f"{path} has version {found['version']} of oneop's binary interface; this oneop reads version "
            f"{_ABI_VERSION}. Build it again."
        )
    targets = tuple(item.target for item in runtimes if set(item.entries) & set(found["entries"]))
    operators = found.get("operators")
    names = {dtype.dlpack: dtype.name for dtype in DTYPES}
    dtypes = {
        name: tuple(tuple(names.get((code, bits), "") for code, bits in kernel) for kernel in kernels)
        for name, _, kernels in operators or ()
    }
    fingerprints = None if operators is None else {name: fingerprint for name, fingerprint, _ in operators}
    return Library(path, targets, fingerprints, dtypes)


def _ask(path: Path, entries: list[str], companions: list[str]) -> dict[str, Any]:
    arguments = [str(path.resolve()), str(_ABI_VERSION), json.dumps(companions), json.dumps(entries)]
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _PROBE, *arguments], capture_output=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{path} did not load within {_TIMEOUT} s. Give a library that oneop build wrote.") from None
    if asked.returncode != 0:
        said = asked.stderr.decode(errors="replace").strip().splitlines()
        how = f"signal {-asked.returncode}" if asked.returncode < 0 else said[-1] if said else "without a word"
        raise BuildError(f"{path}: the process that loaded it ended ({how}). Build it again on this machine.")
    answer: dict[str, Any] = json.loads(asked.stdout.splitlines()[-1])
    return answer
