"""Builds the kernels of an operator at its first call and hands them to the C++ runtime."""

from typing import TYPE_CHECKING, Any

from oneop import registry
from oneop.errors import DefinitionError

if TYPE_CHECKING:
    from oneop.operator import Operator

attached: dict[str, Any] = {}
"""The fast call of each operator that the runtime serves in this process."""


def prepare(operator: "Operator") -> Any:
    """Builds and loads the kernels of the operator's definition file, and returns the operator's fast call."""
    with registry.lock:
        name = operator.definition.name
        if name not in attached:
            _attach(operator)
        return attached[name]


def replace(operator: "Operator") -> None:
    """Puts a new definition of an operator in place of one that has been called: kernels or gradient may differ."""
    if not operator.has_kernels:
        raise DefinitionError(
            f"{operator.definition.name}: this operator has kernels in this process, and the new definition has none. "
            "Start a new process, or give it another name."
        )
    with registry.lock:
        _attach(operator)


def _attach(operator: "Operator") -> None:
    from oneop.kernels.building import build
    from oneop.kernels.library import kernel_library
    from oneop.targets.pytorch import registration, runtime

    siblings = {item.definition.name: item for item in registry.defined_in(operator.defined_in) if item.has_kernels}
    siblings[operator.definition.name] = operator
    library = build(kernel_library([item.kernel_spec() for item in siblings.values()]))
    gradient = operator.gradient_operator.definition.name if operator.gradient_operator is not None else None
    registration.remove_stub(operator.definition.name)
    attached[operator.definition.name] = runtime.attach(
        operator.definition, library, gradient, output_type=operator.output_type, fallback=operator.call_torch
    )
