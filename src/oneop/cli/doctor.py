"""oneop doctor: what is installed here, what can be built with it, and how to get what is missing."""

import ctypes
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

import typer
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.table import Table

from oneop.errors import BuildError
from oneop.kernels.building import Language, find_compiler
from oneop.kernels.cache import cache_root

EXAMPLES = "The exit status is 0 where operators with kernels can be built and run in PyTorch, and 1 otherwise."


@dataclass(frozen=True)
class Finding:
    """One thing looked for: what was found and, where it will not do, the remedy."""

    what: str
    found: str
    remedy: str = ""

    @property
    def ok(self) -> bool:
        return not self.remedy


@dataclass(frozen=True)
class Target:
    """Something oneop makes, and the findings that it needs."""

    what: str
    needs: tuple[str, ...]


BASE = ("Python", "torch", "C++ compiler", "C compiler", "cache folder")
TARGETS = (
    Target("PyTorch: operators in Python", ("Python", "torch")),
    Target("PyTorch: operators with kernels", BASE),
    Target("ONNX: export", ("Python", "torch", "onnx", "onnxscript", "onnx-ir")),
    Target("ONNX Runtime: build a library", BASE),
    Target("ONNX Runtime: run it from Python", ("onnxruntime",)),
    Target("OpenVINO: build a library", (*BASE, "openvino")),
    Target("TensorRT: build a library", (*BASE, "nvcc", "TensorRT headers")),
    Target("CUDA kernels: build", (*BASE, "nvcc")),
    Target("CUDA kernels: run", ("GPU",)),
)


def command() -> None:
    """Show what is installed, which targets can be built, and how to get what is missing."""
    findings = examine()
    console = Console(highlight=False)
    console.print(_findings_table(findings.values()))
    console.print(_targets_table(findings))
    for finding in findings.values():
        if not finding.ok:
            # Plain text: a remedy is there to be copied, and rich would wrap it.
            typer.echo(f"{finding.what}: {finding.remedy}")
    raise typer.Exit(0 if all(findings[name].ok for name in BASE) else 1)


def examine() -> dict[str, Finding]:
    """Everything looked for, by its name."""
    findings = [
        _python(),
        _package("torch"),
        _compiler("C++ compiler", "c++"),
        _compiler("C compiler", "c"),
        _cache(),
        _package("onnx", "onnx"),
        _package("onnxscript", "onnx"),
        _package("onnx-ir", "onnx"),
        _package("onnxruntime", "onnxruntime"),
        _other("openvino", lambda: _version("openvino"), "pip install openvino"),
        _other("tensorrt", lambda: _version("tensorrt"), "pip install tensorrt (with an NVIDIA GPU)"),
        _compiler("nvcc", "cuda"),
        _gpu(),
        _tensorrt_headers(),
    ]
    return {finding.what: finding for finding in findings}


def _python() -> Finding:
    remedy = "" if sys.maxsize > 2**32 else "oneop needs a 64-bit Python."
    return Finding("Python", f"{platform.python_version()} ({sys.executable})", remedy)


def _package(name: str, extra: str | None = None) -> Finding:
    """A package that oneop, or one of its extras, requires: its version against the range in oneop's metadata."""
    admitted = _admitted(name, extra)
    wanted = f"oneop[{extra}]" if extra else f"{name}{admitted}"
    found = _version(name)
    if found is None:
        return Finding(name, "missing", f"pip install '{wanted}'")
    if not admitted.contains(found, prereleases=True):
        return Finding(name, f"{found}, and oneop needs {admitted}", f"pip install '{name}{admitted}'")
    return Finding(name, found)


def _admitted(name: str, extra: str | None) -> SpecifierSet:
    for line in requires("oneop") or ():
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra or ""})
        if requirement.name == name and applies:
            return requirement.specifier
    return SpecifierSet()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _compiler(what: str, language: Language) -> Finding:
    try:
        compiler = find_compiler(language)
    except BuildError as error:
        return Finding(what, "missing", str(error))
    return Finding(what, f"{compiler.name} ({compiler.command[0]})")


def _cache() -> Finding:
    """The cache folder, or the nearest folder above it that exists: whether it can be written to."""
    root = cache_root()
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        remedy = f"make {existing} a folder that you can write to, or set ONEOP_CACHE to another folder"
        return Finding("cache folder", f"{root}: {error.strerror}", remedy)
    return Finding("cache folder", f"{root} ({free / 1e9:.0f} GB free)")


def _other(what: str, find: Callable[[], str | None], remedy: str) -> Finding:
    """Something for targets to come: nothing needs it yet, so that a missing one only shows how to get it."""
    found = find()
    return Finding(what, found) if found is not None else Finding(what, "missing", remedy)


def _gpu() -> Finding:
    """The GPUs that NVIDIA's driver lists; CUDA kernels are compiled without one too."""
    try:
        names = _gpus()
    except OSError:
        return Finding("GPU", "none", "CUDA kernels need NVIDIA's driver and a GPU to run; they can be built without")
    if not names:
        return Finding("GPU", "none", "NVIDIA's driver is here and lists no GPU; `nvidia-smi` says why")
    return Finding("GPU", ", ".join(names))


def _gpus() -> list[str]:
    """Name and compute capability of each. OSError where there is no driver."""
    driver = ctypes.CDLL("libcuda.so.1")
    count, device, major, minor = (ctypes.c_int() for _ in range(4))
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    found = []
    for number in range(count.value):
        name = ctypes.create_string_buffer(256)
        driver.cuDeviceGet(ctypes.byref(device), number)
        driver.cuDeviceGetName(name, len(name), device)
        driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        found.append(f"{name.value.decode(errors='replace')} (sm_{major.value}{minor.value})")
    return found


def _tensorrt_headers() -> Finding:
    from oneop.targets.tensorrt.headers import find_headers

    try:
        headers = find_headers()
    except BuildError as error:
        return Finding("TensorRT headers", "missing", str(error))
    where = f" ({headers.folders[0]})" if headers.folders else ""
    return Finding("TensorRT headers", ".".join(map(str, headers.version)) + where)


def _findings_table(findings: Iterable[Finding]) -> Table:
    table = Table("", "found", title="This machine", title_justify="left", box=None, pad_edge=False)
    for finding in findings:
        table.add_row(finding.what, finding.found if finding.ok else f"[yellow]{finding.found}[/yellow]")
    return table


def _targets_table(findings: dict[str, Finding]) -> Table:
    table = Table("", "ready", title="\nWhat it can do", title_justify="left", box=None, pad_edge=False)
    for target in TARGETS:
        missing = [name for name in target.needs if not findings[name].ok]
        state = f"no: {', '.join(missing)}" if missing else "yes"
        table.add_row(target.what, f"[yellow]{state}[/yellow]" if state != "yes" else state)
    return table
