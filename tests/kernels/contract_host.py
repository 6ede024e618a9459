"""The operators of contract_operators.py, built in both languages and loaded into the ctypes host."""

from dataclasses import replace
from functools import cache

from kernels.contract_operators import DEFINITIONS, specs
from kernels.ctypes_host import Host

from oneop.kernels.building import Library, build
from oneop.kernels.library import kernel_library

STRICT = ("-Werror", "-pedantic")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-g")
EXTRA_FLAGS: tuple[str, ...] = ()


def contract_library(language: str) -> Library:
    """Our own text is compiled with -Werror; the kernels of the tests are held to it too."""
    library = kernel_library(specs({"c": ".c", "c++": ".cpp"}[language]))
    return replace(library, flags=(*library.flags, *STRICT, *EXTRA_FLAGS))


@cache
def host_of(language: str) -> Host:
    return Host(build(contract_library(language)), tuple(DEFINITIONS.values()))
