"""Builds the kernels of an operator at its first call and hands them to the C++ runtime."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from oneop import registry
from oneop.errors import DefinitionError
from oneop.kernels.compilers import NO_NVCC, has_cuda_compiler
from oneop.kernels.console import say

if TYPE_CHECKING:
    from oneop.operator import Operator

attached: dict[str, Any] = {}
"""The fast call of each operator whose kernels are loaded in this process."""

_served: set[str] = set()
"""The operators that the runtime has registered with torch: those of ``attached``, and those defined again since."""


def prepare(operator: "Operator") -> Any:
    """Builds and loads the kernels of an operator as it is defined now, and returns its fast call."""
    with registry.lock:
        name = operator.definition.name
        if name not in attached:
            _attach(registry.operators()[name])  # another thread may have defined it again
        return attached[name]


def prepare_cuda(operator: "Operator") -> None:
    """Builds and attaches the CUDA kernels of an operator, for its first call on a GPU."""
    from oneop.targets.pytorch import runtime

    with registry.lock:
        runtime.attach_cuda(operator.definition.name, cuda_library(operator))


def cuda_library(operator: "Operator") -> Path | None:
    """The CUDA kernels of an operator's file; None where there is no nvcc: the references run on GPUs then.

    They have a library of their own: a call on the CPU does not wait for nvcc, and needs none.
    """
    from oneop.kernels.building import build
    from oneop.kernels.library import kernel_library

    if torch.version.hip is not None:
        _say_not_built(operator.defined_in, "this PyTorch calls AMD's GPUs cuda, and nvcc compiles for NVIDIA's.")
        return None
    if not has_cuda_compiler():
        _say_not_built(operator.defined_in, NO_NVCC)
        return None
    together = registry.compiled_together(item for item in registry.defined_with(operator) if _on_cuda(item))
    return build(kernel_library([item.kernel_spec("cuda") for item in together if _on_cuda(item)]))


def _on_cuda(operator: "Operator") -> bool:
    return "cuda" in operator.devices


@functools.cache
def _say_not_built(file: str, reason: str) -> None:
    say(f"the CUDA kernels of {Path(file).name} are not built, and its references run on the GPU: {reason}")


def serves(name: str) -> bool:
    """Whether the runtime has taken an operator over: nothing else may be registered for it with torch."""
    return name in _served


def replace(operator: "Operator") -> None:
    """Puts a new definition of an operator in place of one that has been called: kernels or gradient may differ.

    It is built when it is called next: the definition of a gradient whose kernels share its source may still follow.
    """
    from oneop.targets.pytorch import runtime

    name = operator.definition.name
    if not operator.has_kernels:
        raise DefinitionError(
            f"{name}: this operator has kernels in this process, and the new definition has none. "
            "Start a new process, or give it another name."
        )
    with registry.lock:
        runtime.detach(name)
        attached.pop(name, None)


def _attach(operator: "Operator") -> None:
    from oneop.kernels.building import build
    from oneop.kernels.library import kernel_library
    from oneop.targets.pytorch import registration, runtime

    together = registry.compiled_together(item for item in registry.defined_with(operator) if item.has_kernels)
    library = build(kernel_library([item.kernel_spec() for item in together]))
    gradient = operator.gradient_operator.definition.name if operator.gradient_operator is not None else None
    name = operator.definition.name
    registration.remove_stub(name)
    attached[name] = runtime.attach(
        operator.definition,
        library,
        gradient,
        cuda=_on_cuda(operator),
        output_type=operator.output_type,
        fallback=operator.call_torch,
    )
    _served.add(name)
