"""Operators in OpenVINO: the extension library, and models compiled with it.

The library is added like any other extension (``Core.add_extension``, or the same call of C++). A node of an ONNX file
whose operator is in the library runs the kernel, whatever ``fallback`` the file was exported with; ``save_model`` keeps
the node and all its attributes in OpenVINO's own format, which is read with the library again. A file with
``fallback="inline"`` runs without it: OpenVINO knows no functions.

What OpenVINO decides, and oneop cannot change:

- Its CPU plugin computes some dtypes in others, in every node of a model: float64 in float32, int64 and the other wide
  integers in int32. Values that do not fit are changed before an operator sees them, and OpenVINO says nothing.
- Extensions run on the CPU device, which wants inputs whose number of dimensions is known.
- A library is for one release of OpenVINO, the one it was built with.
- Attributes of type float have 32 bits in ONNX.
"""

from oneop.targets.openvino.library import build_library
from oneop.targets.openvino.sessions import compile_model, core

__all__ = ["build_library", "compile_model", "core"]
