"""Asks a built library which operators it holds and which runtime it is for, without that runtime."""

import ctypes
import mmap
from pathlib import Path

from oneop.errors import BuildError

_ABI_VERSION = 1
_RUNTIMES = {
    b"RegisterCustomOps\0": "ONNX Runtime",
    b"create_extensions\0": "OpenVINO",
    b"getCreators\0": "TensorRT",
}
"""The symbol that a runtime looks for in its libraries, as a table of symbols holds it."""


class _Operator(ctypes.Structure):  # oneop_operator in oneop.h
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("fingerprint", ctypes.c_char_p),
        ("counts", ctypes.c_int32 * 6),
        ("shapes", ctypes.c_void_p),
        ("kernels", ctypes.c_void_p),
    )


class _Library(ctypes.Structure):  # oneop_library
    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("n_operators", ctypes.c_int32),
        ("operators", ctypes.POINTER(_Operator)),
    )


def fingerprints_in(path: Path, runtime: str, target: str) -> dict[str, str]:
    """The fingerprint of each operator in a library for ``runtime``, by ``namespace::base``.

    Raises BuildError where the file cannot be loaded, or is something else; ``target`` is what to build.
    """
    _require_runtime(path, runtime, target)
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"{path} cannot be loaded: {error}. Build it on this machine with oneop.build.") from error
    if not hasattr(loaded, "oneop_library_v1"):
        raise _not_ours(path, runtime, target)
    loaded.oneop_library_v1.restype = ctypes.POINTER(_Library)
    library = loaded.oneop_library_v1().contents
    if library.abi_version != _ABI_VERSION:
        raise BuildError(
            f"{path} has version {library.abi_version} of oneop's binary interface; this oneop reads version "
            f"{_ABI_VERSION}. Build it again."
        )
    operators = library.operators[: library.n_operators]
    return {operator.name.decode(): operator.fingerprint.decode() for operator in operators}


def _require_runtime(path: Path, runtime: str, target: str) -> None:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            made_for = [name for symbol, name in _RUNTIMES.items() if content.find(symbol) >= 0]
            ours = content.find(b"oneop_library_v1\0") >= 0
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        problem = error.strerror if isinstance(error, OSError) else "it is empty"
        raise BuildError(f"{path} cannot be loaded: {problem}. Build it on this machine with oneop.build.") from error
    if ours and made_for and runtime not in made_for:
        raise BuildError(
            f"{path} is a library for {' and '.join(made_for)}, not for {runtime}. Build one with "
            f'oneop.build(..., "{target}", folder).'
        )
    if not ours and (made_for or _is_library(path)):
        raise _not_ours(path, runtime, target)


def _is_library(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) in (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


def _not_ours(path: Path, runtime: str, target: str) -> BuildError:
    return BuildError(
        f'{path} is not a library for {runtime} that oneop built. Build one with oneop.build(..., "{target}", folder).'
    )
