"""Builds and loads the C++ runtime (once for each torch release) and attaches kernel libraries to operators."""

import ctypes
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from oneop import registry
from oneop.definition.attributes import KINDS
from oneop.definition.record import Attribute, Definition, Input, Output
from oneop.errors import BuildError, CallError
from oneop.kernels.building import Library, Unit, build, find_compiler
from oneop.kernels.console import say

NativeCall = Callable[..., Any]
"""Calls an operator: ``call(*tensors, **attributes)``, implemented in C."""

_HERE = Path(__file__).parent
_KERNEL_HEADERS = _HERE.parents[1] / "kernels" / "include"
_TITLE = "the PyTorch runtime"
_MODULE = "oneop_torch_call"
_ARITIES = ("required", "optional", "variadic")


def attach(
    definition: Definition,
    library: Path,
    gradient: str | None,
    *,
    cuda: bool = False,
    output_type: type | None = None,
    fallback: Callable[..., Any] | None = None,
) -> NativeCall:
    """Registers the kernels in ``library`` for an operator whose schema torch has, and returns its fast call.

    ``gradient`` names the gradient operator; None derives the gradient from the reference. ``cuda`` says that there are
    CUDA kernels as well, which the first call on a GPU gets from ``native.prepare_cuda``. ``output_type`` is the
    NamedTuple that several outputs come in. What the fast call does not serve itself (subclasses, modes, wrong
    arguments) goes to ``fallback``; the default is the operator in ``torch.ops``. May be called again for the same
    operator with another library. Raises BuildError where the library is not of this definition.
    """
    runtime = _runtime()
    problem = runtime.attach(describe(definition, library, gradient, cuda=cuda).encode())
    if problem is not None:
        raise BuildError(problem.decode(errors="replace"))
    if fallback is None:
        fallback = getattr(getattr(torch.ops, definition.namespace), definition.base)
    parameters = (*map(_input_row, definition.inputs), *map(_attribute_row, definition.attributes))
    call: NativeCall = runtime.module.create(definition.name, parameters, len(definition.inputs), fallback, output_type)
    return call


def attach_cuda(name: str, library: Path | None) -> None:
    """Gives an operator that ``attach`` has seen the library of its CUDA kernels; None: there is none.

    Raises BuildError where the library is not of the operator's definition.
    """
    problem = _runtime().attach_cuda(name.encode(), b"" if library is None else os.fsencode(library))
    if problem is not None:
        raise BuildError(problem.decode(errors="replace"))


def detach(name: str) -> None:
    """Takes away the kernels of an operator that ``attach`` gave it: its next call asks ``native`` for new ones."""
    _runtime().detach(name.encode())


def describe(definition: Definition, library: Path, gradient: str | None, *, cuda: bool = False) -> str:
    """The operator as ``oneop_torch_attach`` reads it: one fact a line, words separated by tabs."""
    elements = [element.name for element in definition.elements]
    lines: list[Sequence[object]] = [
        ("operator", definition.name),
        ("fingerprint", definition.fingerprint),
        ("library", library),
        *([("gradient", gradient)] if gradient is not None else []),
        *([("strided",)] if definition.layout == "strided" else []),
        *([("cuda",)] if cuda else []),
        *([("native_only",)] if definition.native_only else []),
        *(("element", item.name, *(dtype.name for dtype in item.dtypes)) for item in definition.elements),
        *(_input_line(item, elements) for item in definition.inputs),
        *(
            ("attribute", item.name, _kind(item) + 1, int(item.optional))  # oneop_attribute_kind begins with NONE
            for item in definition.attributes
        ),
        *(_output_line(definition, item, elements) for item in definition.outputs),
    ]
    if any(character in str(library) for character in "\t\n"):
        raise BuildError(f"{definition.name}: {str(library)!r} has a tab or a line break in its name. Set ONEOP_CACHE.")
    return "\n".join("\t".join(map(str, line)) for line in lines)


def _input_line(item: Input, elements: list[str]) -> Sequence[object]:
    batch = int(item.shape.batch is not None)
    return ("input", item.name, item.arity, elements.index(item.element.name), batch, len(item.shape.dims))


def _output_line(definition: Definition, item: Output, elements: list[str]) -> Sequence[object]:
    names = [source.name for source in definition.inputs]
    mirrors = -1 if item.mirrors is None else names.index(item.mirrors)
    return ("output", item.name, elements.index(item.element.name), mirrors, *item.shape.dims)


def _kind(item: Attribute) -> int:
    return KINDS.index(item.kind)


def _input_row(item: Input) -> tuple[object, ...]:
    return (item.name, _ARITIES.index(item.arity), item.arity == "optional", None, (None,) if item.has_default else ())


def _attribute_row(item: Attribute) -> tuple[object, ...]:
    return (item.name, _kind(item), item.optional, item.choices, () if item.is_required else (item.default,))


@dataclass(frozen=True)
class _Runtime:
    attach: Callable[[bytes], bytes | None]
    attach_cuda: Callable[[bytes, bytes], bytes | None]
    detach: Callable[[bytes], None]
    module: ModuleType


@cache
def _runtime() -> _Runtime:
    core_path, module_path = build_runtime()
    core = ctypes.CDLL(str(core_path))
    attach = core.oneop_torch_attach
    attach.argtypes, attach.restype = [ctypes.c_char_p], ctypes.c_char_p
    attach_cuda = core.oneop_torch_attach_cuda
    attach_cuda.argtypes, attach_cuda.restype = [ctypes.c_char_p, ctypes.c_char_p], ctypes.c_char_p
    detach = core.oneop_torch_detach
    detach.argtypes, detach.restype = [ctypes.c_char_p], None
    module = _load(module_path)
    set_hooks = core.oneop_torch_set_hooks
    set_hooks.argtypes, set_hooks.restype = [ctypes.c_void_p], None
    levels = torch._C._functorch
    set_hooks(
        module.hooks(
            CallError,
            _prepare,
            _prepare_cuda,
            levels._grad_increment_nesting,
            levels._grad_decrement_nesting,
            levels._wrap_for_grad,
            levels._unwrap_for_grad,
        )
    )
    return _Runtime(attach, attach_cuda, detach, module)


def _prepare(name: str) -> None:
    from oneop.targets.pytorch import native  # which imports this module

    native.prepare(registry.operators()[name])


def _prepare_cuda(name: str) -> None:
    from oneop.targets.pytorch import native

    native.prepare_cuda(registry.operators()[name])


def _load(path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(path))
    specification = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    loader.exec_module(module)
    return module


def build_runtime() -> tuple[Path, Path]:
    """Both halves at once, on two cores: the one that knows no Python, and the one that does."""
    begin = time.monotonic()
    said: set[str] = set()

    def tell(line: str) -> None:
        kind = line.partition(" ")[0]  # both halves say that they begin; when both are built, we say it
        if kind not in said:
            said.add(kind)
            if kind != "built":
                say(line)

    with ThreadPoolExecutor(2) as pool:
        core = pool.submit(build, core_library(), on_start=tell)
        module = pool.submit(build, _module_library(), on_start=tell)
        paths = core.result(), module.result()
    if "built" in said:
        say(f"built {_TITLE} in {time.monotonic() - begin:.0f} s")
    return paths


def core_library() -> Library:
    """The half that C++ programs can load too."""
    compile_flags, link_flags = _openmp()
    unit = Unit("runtime", "c++", path=_HERE / "runtime.cpp", flags=("-std=c++20", *compile_flags))
    return _library("oneop_torch", unit, ("torch_cpu", "c10"), link_flags)


def _module_library() -> Library:
    unit = Unit("call", "c++", path=_HERE / "call.cpp", flags=("-std=c++20",))
    return _library(_MODULE, unit, ("torch_python", "torch_cpu", "c10"), ())


def _library(stem: str, unit: Unit, libraries: Sequence[str], link_flags: Sequence[str]) -> Library:
    root = Path(torch.__file__).parent
    headers = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include"]
    return Library(
        title=_TITLE,
        stem=stem,
        units=(unit,),
        include_dirs=(_HERE, _KERNEL_HEADERS),
        system_dirs=(*headers, Path(sysconfig.get_paths()["include"])),
        flags=(
            "-O2",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            f'-DONEOP_TORCH="{torch.__version__}"',  # for the cache's key
        ),
        link_flags=(f"-L{root / 'lib'}", *(f"-l{name}" for name in libraries), *link_flags),
        allow_undefined=True,
        note=f"once for torch {torch.__version__}, about 20 s",
    )


def _openmp() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What lets ``parallel_for`` use torch's threads: OpenMP code, but torch's own copy of the OpenMP library."""
    if "OpenMP" not in torch.__config__.parallel_info():
        return (), ()
    if sys.platform == "darwin":
        return ("-Xclang", "-fopenmp"), ()
    is_clang = "clang" in find_compiler("c++").version
    return ("-fopenmp",), (("-fopenmp",) if is_clang else ())  # clang's code calls another library than gcc's
