"""What one operator's kernel is built from: its definition, its sources and the options of the build."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Literal

from oneop.definition.dtypes import BY_NAME, DType, ElementType
from oneop.definition.record import Definition
from oneop.errors import DefinitionError

Language = Literal["c", "c++", "cuda"]
Device = Literal["cpu", "cuda"]

LANGUAGES: dict[str, Language] = {".c": "c", ".cpp": "c++", ".cc": "c++", ".cxx": "c++", ".cu": "cuda"}
DEVICES: dict[Device, int] = {"cpu": 1, "cuda": 2}
"""Where kernels run, and DLPack's number for it."""
NEEDS_WRITING = (BY_NAME["float16"], BY_NAME["bfloat16"])
"""Element types that a kernel serves only where its definition asks for them."""


@dataclass(frozen=True)
class KernelOptions:
    """How kernels are compiled.

    ``dtypes`` are the element types the kernel is compiled for; None stands for all that the definition admits, except
    float16 and bfloat16. ``march`` is "native" or another value of the compiler's -march; None keeps the code portable.
    ``cuda_flags`` are nvcc's alone; ``cuda_architectures`` are numbers such as "80" and "90a", None those of
    ``compilers.cuda_architectures``.
    """

    dtypes: tuple[DType, ...] | None = None
    flags: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    libraries: tuple[str, ...] = ()
    march: str | None = None
    cuda_flags: tuple[str, ...] = ()
    cuda_architectures: tuple[str, ...] | None = None


@dataclass(frozen=True)
class KernelSpec:
    """The kernel of one operator on one device. The first source holds the kernel function and decides the language.

    In C every source may hold some of the functions, since there is one for each combination of dtypes. Without sources
    there is no kernel: a library then knows the operator, and how its sizes fit together.
    """

    definition: Definition
    sources: tuple[Path, ...]
    options: KernelOptions = field(default_factory=KernelOptions)
    device: Device = "cpu"

    @property
    def language(self) -> Language | None:
        return language_of(self.sources[0], self.definition) if self.sources else None

    def combinations(self) -> tuple[tuple[DType, ...], ...]:
        """The dtypes a kernel is compiled for: in each combination one for each entry of ``definition.elements``."""
        if not self.sources:
            return ()
        return tuple(product(*(self._dtypes_of(element) for element in self.definition.elements)))

    def _dtypes_of(self, element: ElementType) -> tuple[DType, ...]:
        if element.is_fixed:
            return element.dtypes
        if self.options.dtypes is None:
            return tuple(dtype for dtype in element.dtypes if dtype not in NEEDS_WRITING)
        chosen = tuple(dtype for dtype in element.dtypes if dtype in self.options.dtypes)
        if not chosen:
            raise DefinitionError(
                f"{self.definition.name}: dtypes={_names(self.options.dtypes)} holds no dtype of `{element.name}`. "
                f"Add one or more of {_names(element.dtypes)}."
            )
        return chosen


def language_of(source: Path, definition: Definition) -> Language:
    """The language of a source file, from its suffix."""
    if source.suffix in LANGUAGES:
        return LANGUAGES[source.suffix]
    cpp = ", ".join(suffix for suffix, language in LANGUAGES.items() if language == "c++")
    raise DefinitionError(
        f"{definition.name}: the kernel source {source.name} has no compiler here: `{source.suffix}` is not a known"
        f" suffix. Name a C file (.c), a C++ file ({cpp}) or a CUDA file (.cu)."
    )


def device_of(source: Path, definition: Definition) -> Device:
    """The device that a source file has kernels for."""
    return "cuda" if language_of(source, definition) == "cuda" else "cpu"


def _names(dtypes: Iterable[DType]) -> list[str]:
    return [dtype.name for dtype in dtypes]
