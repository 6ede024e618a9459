"""The element types that TensorRT's plugins take, by oneop's name."""

from oneop.definition.dtypes import DTYPES, DType

TENSORRT_TYPES: dict[str, str] = {
    "float32": "kFLOAT",
    "float16": "kHALF",
    "bfloat16": "kBF16",
    "int8": "kINT8",
    "int32": "kINT32",
    "int64": "kINT64",
}
"""``nvinfer1::DataType``. It has kBOOL and kUINT8 too, which IPluginV3 does not take."""

SUPPORTED: tuple[DType, ...] = tuple(dtype for dtype in DTYPES if dtype.name in TENSORRT_TYPES)
