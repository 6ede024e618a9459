"""The ONNX target: models whose operators keep their name, attributes and meaning.

``export`` writes a file; ``translations`` gives people who call ``torch.onnx.export`` themselves the same with one
argument.
"""

import importlib.util

from oneop.errors import ExportError

_missing = [name for name in ("onnx", "onnx_ir", "onnxscript") if importlib.util.find_spec(name) is None]
if _missing:
    raise ExportError(
        f"oneop: writing ONNX files needs {', '.join(_missing)}, which this Python does not have. "
        "Run `pip install onnx onnxscript`."
    )

from oneop.targets.onnx.exporting import export, translations  # noqa: E402
from oneop.targets.onnx.translating import Fallback  # noqa: E402

__all__ = ["Fallback", "export", "translations"]
