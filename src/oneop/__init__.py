"""Define a PyTorch operator once; train with it, export it, and run it natively in other runtimes."""

import importlib
from typing import TYPE_CHECKING, Any

from oneop import older_exporter, registry
from oneop.errors import BuildError, CallError, DefinitionError, ExportError, OneopError
from oneop.operator import Operator, op

if TYPE_CHECKING:
    from oneop import epochs, testing
    from oneop.targets import onnx, onnxruntime, openvino
    from oneop.targets.building import build
    from oneop.targets.onnx import export
    from oneop.targets.pytorch.exported import load_exported
    from oneop.targets.pytorch.from_function import from_function
    from oneop.targets.pytorch.sharding_check import verify_sharding

__version__ = "0.1.0"

__all__ = [
    "BuildError",
    "CallError",
    "DefinitionError",
    "ExportError",
    "OneopError",
    "Operator",
    "build",
    "epochs",
    "export",
    "from_function",
    "load_exported",
    "onnx",
    "onnxruntime",
    "op",
    "openvino",
    "registry",
    "testing",
    "verify_sharding",
]

_LATER = {
    "build": ("oneop.targets.building", "build"),
    "epochs": ("oneop.epochs", None),
    "export": ("oneop.targets.onnx", "export"),
    "from_function": ("oneop.targets.pytorch.from_function", "from_function"),
    "load_exported": ("oneop.targets.pytorch.exported", "load_exported"),
    "onnx": ("oneop.targets.onnx", None),
    "onnxruntime": ("oneop.targets.onnxruntime", None),
    "openvino": ("oneop.targets.openvino", None),
    "testing": ("oneop.testing", None),
    "verify_sharding": ("oneop.targets.pytorch.sharding_check", "verify_sharding"),
}
"""Names whose module imports a runtime, or much else: resolved when they are used."""


older_exporter.watch()


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'oneop' has no attribute {name!r}")
    module, attribute = _LATER[name]
    found = importlib.import_module(module)
    return found if attribute is None else getattr(found, attribute)
