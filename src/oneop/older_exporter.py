"""torch's older ONNX exporter, called by somebody himself: it learns of our operators when it is imported."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oneop import registry
from oneop.importing import when_imported

if TYPE_CHECKING:
    from oneop.operator import Operator

_EXPORTER = "torch.onnx._internal.torchscript_exporter.utils"
"""torch imports it with torch.compile too, so what happens then must be quick: onnx is imported by the first export."""

OLDEST_OPSET = 9
"""A symbolic function serves this opset version and newer ones."""


def watch() -> None:
    when_imported(_EXPORTER, lambda: registry.subscribe(register_symbolic))


def register_symbolic(operator: "Operator") -> None:
    """Makes the older exporter write an operator as one node with every attribute."""
    name = operator.definition.name
    sys.modules[_EXPORTER].register_custom_op_symbolic(name, _symbolic(name), OLDEST_OPSET)


def _symbolic(name: str) -> Callable[..., Any]:
    def symbolic(graph: Any, *values: Any) -> Any:
        from oneop.targets.onnx import torchscript

        return torchscript.write_node(registry.operators()[name], graph, values)

    return symbolic
