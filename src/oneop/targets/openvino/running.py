"""OpenVINO's two ways to run a model file: its own operators only, or with the extension."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneop.errors import ExportError, OneopError
from oneop.targets.models import Call, ModelRunner
from oneop.targets.openvino.installation import missing
from oneop.targets.openvino.sessions import compile_model, prepare

if TYPE_CHECKING:
    from oneop.operator import Operator


def _inlined(path: Path, operators: "Sequence[Operator]", threads: int | None) -> Call:
    return _open(path, [], threads)


def _native(path: Path, operators: "Sequence[Operator]", threads: int | None) -> Call:
    return _open(path, operators, threads)


def _open(path: Path, operators: "Sequence[Operator]", threads: int | None) -> Call:
    import openvino

    # Otherwise float32 becomes bfloat16 in some nodes, on processors that have it.
    config: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}
    if threads is not None:
        config["INFERENCE_NUM_THREADS"] = threads
    try:
        request = compile_model(path, operators, **config).create_infer_request()
    except OneopError:
        raise
    except RuntimeError as error:
        raise ExportError(f"OpenVINO does not take {path}: {error}") from error

    def call(arrays: Mapping[str, Any]) -> list[Any]:
        # Not `infer`: with one thread, OpenVINO loses the errors of any node there, its own too.
        request.start_async({name: _tensor(openvino, array) for name, array in arrays.items()})
        request.wait()
        return [_array(openvino, request.get_output_tensor(index)) for index in range(len(request.model_outputs))]

    return call


def _tensor(openvino: Any, array: Any) -> Any:
    """numpy has no bfloat16 of its own; its memory is handed over as it is."""
    import numpy

    contiguous = numpy.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.name != "bfloat16":
        return openvino.Tensor(contiguous)
    return openvino.Tensor(contiguous.view(numpy.uint16), openvino.Shape(array.shape), openvino.Type.bf16)


def _array(openvino: Any, tensor: Any) -> Any:
    if tensor.element_type != openvino.Type.bf16:
        return tensor.data.copy()
    import ml_dtypes

    return tensor.data.copy().view(ml_dtypes.bfloat16)


_NARROWED = {"float64": "float32"}
"""What the CPU plugin does, whatever the file says. It also computes int64 in int32, and finds NaN > 0 to be true."""

MODEL_RUNNERS = (
    ModelRunner(
        "openvino", "OpenVINO, inlined", False, "inline", missing, _inlined, _NARROWED, "int32", loses_nan=True
    ),
    ModelRunner("openvino", "OpenVINO, native", True, "function", missing, _native, _NARROWED, prepare=prepare),
)
