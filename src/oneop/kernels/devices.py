"""Which kernels of some operators go into a library: those of the devices that are asked for and can be built for."""

from collections.abc import Sequence
from typing import Protocol

from oneop.definition.record import Definition
from oneop.kernels.compilers import NO_NVCC, has_cuda_compiler
from oneop.kernels.console import say
from oneop.kernels.spec import DEVICES, Device, KernelSpec


class HasKernels(Protocol):
    """An operator, as far as its kernels go."""

    definition: Definition

    @property
    def devices(self) -> tuple[Device, ...]: ...

    def kernel_spec(self, device: Device = "cpu") -> KernelSpec: ...


def specs_for(operators: Sequence[HasKernels], devices: Sequence[Device]) -> list[KernelSpec]:
    """One spec for each operator and device, where there are kernels."""
    return [operator.kernel_spec(device) for operator in operators for device in devices if device in operator.devices]


def devices_here(operators: Sequence[HasKernels]) -> tuple[Device, ...]:
    """The devices whose kernels can be built on this machine; a line says so where those for CUDA cannot."""
    with_cuda = [operator for operator in operators if "cuda" in operator.devices]
    if not with_cuda or has_cuda_compiler():
        return tuple(DEVICES)
    names = ", ".join(operator.definition.name for operator in with_cuda)
    say(f"the CUDA kernels of {names} are left out: {NO_NVCC}")
    return ("cpu",)
