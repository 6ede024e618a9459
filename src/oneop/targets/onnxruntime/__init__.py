"""Operators in ONNX Runtime: the native library, and sessions that have it registered.

The library is registered with ONNX Runtime like any other (``SessionOptions.register_custom_ops_library``, or the same
call of another language). A node whose operator is registered runs the kernel; without the library the same file runs
the function that it carries.

What ONNX Runtime decides, and oneop cannot change:

- Once an operator is registered, ONNX Runtime never falls back to the function. A node whose dtypes have no kernel
  makes the session fail, with a message that names operator, node, dtype and the two remedies: build with that dtype,
  or leave the library out.
- Inputs of one dtype variable with different dtypes are refused by ONNX Runtime, in words of its own ("no kernel def
  matches node inputs").
- Before 1.24, shape inference of a node with an absent input crashed inside ONNX Runtime. There, operators with
  optional inputs have no shape inference: their output shapes are those that the model states. Sizes that do not fit
  are reported all the same.
- Before 1.25, a kernel could not read a list of strings. There, one process can use one value for each such attribute
  of an operator without optional inputs; anything else is refused.
- Kernels for CUDA are registered for its CUDA execution provider, in 1.18 or newer. Where a node's dtypes have none,
  the runtime takes the CPU's kernel and copies.
- A node names all outputs of its operator, those that nobody uses too.
- Attributes of type float have 32 bits in ONNX.
"""

from oneop.targets.onnxruntime.library import DEVICES, build_library
from oneop.targets.onnxruntime.sessions import session

__all__ = ["DEVICES", "build_library", "session"]
