"""Asks a library that oneop built which operators it holds, without ONNX Runtime."""

import ctypes
from pathlib import Path

from oneop.errors import BuildError

_ABI_VERSION = 1


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


def fingerprints_of(path: Path) -> dict[str, str]:
    """The fingerprint of each operator in a library, by ``namespace::base``."""
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"{path} cannot be loaded: {error}. Build it on this machine with oneop.build.") from error
    if not hasattr(loaded, "oneop_library_v1") or not hasattr(loaded, "RegisterCustomOps"):
        raise BuildError(
            f"{path} is not a library for ONNX Runtime that oneop built. Build one with "
            'oneop.build(..., "onnxruntime", folder).'
        )
    loaded.oneop_library_v1.restype = ctypes.POINTER(_Library)
    library = loaded.oneop_library_v1().contents
    if library.abi_version != _ABI_VERSION:
        raise BuildError(
            f"{path} has version {library.abi_version} of oneop's binary interface; this oneop reads version "
            f"{_ABI_VERSION}. Build it again."
        )
    operators = library.operators[: library.n_operators]
    return {operator.name.decode(): operator.fingerprint.decode() for operator in operators}
