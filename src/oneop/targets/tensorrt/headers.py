"""Finds the headers of TensorRT and of CUDA's runtime, which the plugin library is compiled against."""

import importlib.util
import os
import re
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oneop.errors import BuildError

TENSORRT_HEADER = "NvInferRuntime.h"
CUDA_HEADER = "cuda_runtime_api.h"
OLDEST = (10, 0)
"""IPluginV3 begins there."""

_PACKAGES = ("tensorrt", "tensorrt_libs", "tensorrt_cu13_libs", "tensorrt_cu12_libs")
_CUDA_PACKAGES = ("cu13", "cuda_runtime")  # below the namespace package `nvidia`
_VERSION = re.compile(r"^#define (?:NV_TENSORRT|TRT)_(MAJOR|MINOR|PATCH)(?:_ENTERPRISE)? (\d+)", re.M)


@dataclass(frozen=True)
class Headers:
    """``folders`` are those that the compiler does not search by itself; ``version`` is TensorRT's."""

    folders: tuple[Path, ...]
    version: tuple[int, ...]


def find_headers() -> Headers:
    """Raises BuildError where there are none, or only those of a TensorRT that is too old."""
    tensorrt, cuda = _tensorrt_folder(), _cuda_folder()
    version = _version_of(tensorrt)
    if version < OLDEST:
        raise BuildError(
            f"the headers in {tensorrt} are those of TensorRT {'.'.join(map(str, version)) or 'before 8'}; oneop's"
            " plugins need 10.0 or newer, where IPluginV3 begins."
        )
    standard = _system_folders()
    return Headers(tuple(folder for folder in (tensorrt, cuda) if folder not in standard), version)


def _tensorrt_folder() -> Path:
    for variable, below in (("TENSORRT_INCLUDE", "."), ("TENSORRT_ROOT", "include")):
        named = os.environ.get(variable)
        if named:
            folder = Path(named).resolve() / below
            if not (folder / TENSORRT_HEADER).is_file():
                raise BuildError(
                    f"{variable} is {named}, and there is no {folder.resolve() / TENSORRT_HEADER}. Set it to the"
                    f" folder {'that holds' if below == '.' else 'of TensorRT, whose include folder holds'} it."
                )
            return folder.resolve()
    for folder in (*_package_folders(), *_system_folders()):
        if (folder / TENSORRT_HEADER).is_file():
            return folder
    raise BuildError(
        f"TensorRT's headers ({TENSORRT_HEADER}) are not on this machine: not named by TENSORRT_INCLUDE or"
        " TENSORRT_ROOT, not in an installed package, not where the system keeps its headers. Install TensorRT 10 or"
        " newer, or take the folder `include` of the public repository NVIDIA/TensorRT and set TENSORRT_INCLUDE to it."
    )


def _cuda_folder() -> Path:
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    folders = [Path(home) / "include" for home in homes if home]
    if nvcc is not None:
        folders.append(Path(nvcc).resolve().parent.parent / "include")
    folders += [Path("/usr/local/cuda/include"), *_cuda_package_folders(), *_system_folders()]
    for folder in folders:
        if (folder / CUDA_HEADER).is_file():
            return folder.resolve()
    raise BuildError(
        f"CUDA's headers ({CUDA_HEADER}), which TensorRT's need, are not on this machine. Install the CUDA toolkit and"
        " set CUDA_HOME to its folder."
    )


def _package_folders() -> Iterator[Path]:
    """What is installed with pip, where it brings headers."""
    for name in _PACKAGES:
        found = importlib.util.find_spec(name)
        for place in (found.submodule_search_locations or ()) if found is not None else ():
            yield from (Path(place), Path(place) / "include")


def _cuda_package_folders() -> Iterator[Path]:
    found = importlib.util.find_spec("nvidia")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        yield from (Path(place) / name / "include" for name in _CUDA_PACKAGES)


def _system_folders() -> tuple[Path, ...]:
    """Those that compilers search by themselves."""
    multiarch = sysconfig.get_config_var("MULTIARCH")
    places = [Path("/usr/include", multiarch)] if multiarch else []
    return (*places, Path("/usr/local/include"), Path("/usr/include"))


def _version_of(folder: Path) -> tuple[int, ...]:
    header = folder / "NvInferVersion.h"
    if not header.is_file():
        return ()
    found = dict(_VERSION.findall(header.read_text(encoding="utf-8", errors="replace")))
    return tuple(int(found[part]) for part in ("MAJOR", "MINOR", "PATCH") if part in found)
