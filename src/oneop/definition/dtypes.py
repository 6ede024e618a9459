"""The element types oneop knows, and their name in every language and runtime: one table, read by every target."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    ``name`` is what torch and numpy call it, ``short`` the suffix of C kernels, ``dlpack`` DLPack's (code, bits),
    ``onnx`` the number that ONNX's TensorProto and ONNX Runtime share.
    """

    name: str
    short: str
    dlpack: tuple[int, int]
    onnx: int
    onnx_type: str
    c_type: str
    cpp_type: str

    @property
    def is_floating(self) -> bool:
        return self.dlpack[0] in (2, 4)


DTYPES: tuple[DType, ...] = (
    DType("float32", "f32", (2, 32), 1, "tensor(float)", "float", "float"),
    DType("float64", "f64", (2, 64), 11, "tensor(double)", "double", "double"),
    DType("float16", "f16", (2, 16), 10, "tensor(float16)", "oneop_float16", "oneop::float16"),
    DType("bfloat16", "bf16", (4, 16), 16, "tensor(bfloat16)", "oneop_bfloat16", "oneop::bfloat16"),
    DType("int8", "i8", (0, 8), 3, "tensor(int8)", "int8_t", "std::int8_t"),
    DType("int16", "i16", (0, 16), 5, "tensor(int16)", "int16_t", "std::int16_t"),
    DType("int32", "i32", (0, 32), 6, "tensor(int32)", "int32_t", "std::int32_t"),
    DType("int64", "i64", (0, 64), 7, "tensor(int64)", "int64_t", "std::int64_t"),
    DType("uint8", "u8", (1, 8), 2, "tensor(uint8)", "uint8_t", "std::uint8_t"),
    DType("uint16", "u16", (1, 16), 4, "tensor(uint16)", "uint16_t", "std::uint16_t"),
    DType("uint32", "u32", (1, 32), 12, "tensor(uint32)", "uint32_t", "std::uint32_t"),
    DType("uint64", "u64", (1, 64), 13, "tensor(uint64)", "uint64_t", "std::uint64_t"),
    DType("bool", "bool", (6, 8), 9, "tensor(bool)", "bool", "bool"),
)

BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in DTYPES}


@dataclass(frozen=True, slots=True)
class ElementType:
    """A dtype variable of one operator: the jaxtyping class that names it, and the dtypes it admits.

    Parameters whose element types carry the same name share one dtype in a call.
    """

    name: str
    dtypes: tuple[DType, ...]

    @property
    def is_fixed(self) -> bool:
        return len(self.dtypes) == 1

    @property
    def may_be_floating(self) -> bool:
        return any(dtype.is_floating for dtype in self.dtypes)
