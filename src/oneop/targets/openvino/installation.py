"""Where the installed OpenVINO keeps what a library for it is compiled and linked with."""

import functools
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from oneop.errors import BuildError

_INSTALL = "Install it: pip install 'oneop[openvino]'."
_LIBRARIES = ("openvino", "openvino_onnx_frontend")
_OLD_STRINGS = b"_ZN2ov9ExceptionC2ERKSs\0"  # ov::Exception(const std::string &)
_THREADS = "tbb"  # not in every build of OpenVINO


@dataclass(frozen=True)
class Installation:
    """The openvino package: its release, headers and shared libraries."""

    version: str
    include: Path
    libraries: tuple[Path, ...]
    has_tbb: bool
    flags: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Of the shared libraries, for programs in C++."""
        return self.libraries[0].parent


def missing() -> str | None:
    """Why OpenVINO cannot be used here, and what to do; None where it can."""
    if importlib.util.find_spec("openvino") is None:
        return f"OpenVINO is not installed. {_INSTALL}"
    return None


def installation() -> Installation:
    """Raises BuildError where OpenVINO is not installed, or without what compiling needs."""
    problem = missing()
    spec = importlib.util.find_spec("openvino") if problem is None else None
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"openvino: {problem or f'the package openvino is not the one of Intel. {_INSTALL}'}")
    folder = Path(next(iter(spec.submodule_search_locations)))
    include = folder / "include"
    found = {name: _library(folder / "libs", name) for name in (*_LIBRARIES, _THREADS)}
    libraries = tuple(path for path in found.values() if path is not None)
    if not (include / "openvino" / "openvino.hpp").is_file() or not all(found[name] for name in _LIBRARIES):
        raise BuildError(
            f"openvino: {folder} holds no C++ headers and libraries to build an extension with. Install the package "
            "from PyPI, which has them: pip install --force-reinstall openvino."
        )
    return Installation(
        importlib.metadata.version("openvino"),
        include,
        libraries,
        found[_THREADS] is not None,
        _flags(libraries[0], libraries[0].stat().st_mtime_ns),
    )


@functools.cache
def _flags(library: Path, changed: int) -> tuple[str, ...]:
    """Packages before 2026 were compiled with the strings that libstdc++ had before C++11; so has what links them."""
    return ("-D_GLIBCXX_USE_CXX11_ABI=0",) if _OLD_STRINGS in library.read_bytes() else ()


def _library(folder: Path, name: str) -> Path | None:
    found = sorted([*folder.glob(f"lib{name}.so.*"), *folder.glob(f"lib{name}.*dylib"), *folder.glob(f"lib{name}.so")])
    return found[0] if found else None
