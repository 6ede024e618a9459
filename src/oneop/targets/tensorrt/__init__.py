"""Operators in TensorRT: plugins (``IPluginV3``) whose sources are generated, and the library that holds them.

The library is loaded with TensorRT's plugin registry (``load_library``, ``trtexec --dynamicPlugins``); a node of a file
that was exported with ``fallback="none"`` then runs the operator's CUDA kernel. docs/tensorrt.md shows both, and what
TensorRT cannot express.
"""

from oneop.kernels.spec import Device
from oneop.targets.tensorrt.library import build_library

__all__ = ["DEVICES", "OPTIONS", "build_library"]

DEVICES: tuple[Device, ...] = ("cuda",)
"""Whose kernels ``oneop.build`` hands to ``build_library``."""

OPTIONS = ("bounds", "workspace")
"""What ``oneop.build`` takes for this target besides; see ``build_library``."""
