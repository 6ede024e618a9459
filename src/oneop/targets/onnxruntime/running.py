"""Runs a model file in ONNX Runtime: through the functions in the file, or with the kernels registered."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneop.errors import ExportError
from oneop.targets.models import Call, ModelRunner
from oneop.targets.onnxruntime import sessions

if TYPE_CHECKING:
    import onnxruntime

    from oneop.operator import Operator

_BFLOAT16 = 16
"""ONNX's number of the element type that numpy has not."""


def _missing() -> str | None:
    if importlib.util.find_spec("onnxruntime") is not None:
        return None
    return "ONNX Runtime is not installed. Run `pip install onnxruntime`."


def _open_with_functions(path: Path, operators: "Sequence[Operator]", threads: int | None) -> Call:
    return _open(path, [], threads)


def _open_native(path: Path, operators: "Sequence[Operator]", threads: int | None) -> Call:
    return _open(path, operators, threads)


def _open(path: Path, operators: "Sequence[Operator]", threads: int | None) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it refuses comes as an exception
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        opened = sessions.session(path, list(operators), sess_options=options, providers=["CPUExecutionProvider"])
    except _errors() as error:
        raise ExportError(
            f"ONNX Runtime {onnxruntime.__version__} does not load {path.name}: {_said(error)}"
        ) from error
    outputs = [item.name for item in opened.get_outputs()]
    narrow = {item.name for item in [*opened.get_inputs(), *opened.get_outputs()] if "bfloat16" in item.type}
    if narrow:
        return lambda arrays: _call_with_bfloat16(opened, outputs, arrays)
    return lambda arrays: list(_run(opened, lambda: opened.run(outputs, dict(arrays))))


def _call_with_bfloat16(
    opened: "onnxruntime.InferenceSession", outputs: Sequence[str], arrays: Mapping[str, Any]
) -> list[Any]:
    """ONNX Runtime's Python interface gives bfloat16 to nobody: it goes in and out as its bits."""
    import ml_dtypes
    import numpy as np
    import onnxruntime

    value = onnxruntime.OrtValue
    given = {
        name: value.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array).view(np.uint16), _BFLOAT16)
        if array.dtype == ml_dtypes.bfloat16
        else value.ortvalue_from_numpy(array)
        for name, array in arrays.items()
    }
    found = _run(opened, lambda: opened.run_with_ort_values(list(outputs), given))
    return [_bits(item, ml_dtypes.bfloat16) if "bfloat16" in item.data_type() else item.numpy() for item in found]


def _bits(value: Any, dtype: Any) -> Any:
    """A copy of the memory of an OrtValue whose dtype numpy() refuses."""
    import ctypes

    import numpy as np

    size = value.tensor_size_in_bytes()
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(content), dtype=np.uint16).view(dtype).reshape(value.shape())


def _run(opened: "onnxruntime.InferenceSession", run: Any) -> Any:
    try:
        return run()
    except _errors() as error:
        raise ExportError(f"ONNX Runtime: {_said(error)}") from error


def _errors() -> tuple[type[Exception], ...]:
    """The exceptions of ONNX Runtime, which share no base class of their own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found = [item for item in vars(state).values() if isinstance(item, type) and issubclass(item, Exception)]
    return (*found, RuntimeError, ValueError)


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())


MODEL_RUNNERS: tuple[ModelRunner, ...] = (
    ModelRunner("onnxruntime", "ONNX Runtime, function body", False, "function", _missing, _open_with_functions),
    ModelRunner(
        "onnxruntime",
        "ONNX Runtime, native",
        True,
        "function",
        _missing,
        _open_native,
        prepare=sessions.prepare,
    ),
)
