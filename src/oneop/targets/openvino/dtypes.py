"""The dtypes that OpenVINO has, and the refusal of definitions that need another."""

from collections.abc import Sequence

from oneop.definition.dtypes import DType
from oneop.definition.record import Definition, Input, Output
from oneop.errors import BuildError
from oneop.kernels.spec import KernelSpec

NAMES: dict[str, str] = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "boolean",
}
"""What ``ov::element::Type`` calls each of them."""


def require_dtypes(specs: Sequence[KernelSpec]) -> None:
    """Raises BuildError where a kernel takes or gives a dtype that OpenVINO has not."""
    for spec in specs:
        for combination in spec.combinations():
            for element, dtype in zip(spec.definition.elements, combination, strict=True):
                if dtype.name not in NAMES:
                    raise BuildError(_refusal(spec.definition, element.name, dtype))


def _refusal(definition: Definition, element: str, dtype: DType) -> str:
    parameters: list[Input | Output] = [*definition.inputs, *definition.outputs]
    listed = ", ".join(f"`{item.name}`" for item in parameters if item.element.name == element)
    return (
        f"{definition.name}: {listed} may be {dtype.name}, and OpenVINO has no such type. Leave it out of the kernel's "
        f'`dtypes` ({", ".join(NAMES)} are there), or export with fallback="inline", which needs no library.'
    )
