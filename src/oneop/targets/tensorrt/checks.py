"""What of a definition TensorRT cannot express: refused when the library is built, with the parameter and a way out."""

from collections.abc import Sequence

from oneop.definition.dtypes import DType, ElementType
from oneop.definition.record import Definition
from oneop.errors import BuildError
from oneop.kernels.spec import KernelSpec
from oneop.targets.plugins import PARSER_ATTRIBUTES
from oneop.targets.tensorrt.dtypes import SUPPORTED
from oneop.targets.tensorrt.names import TAKEN

MAX_DIMS = 8
"""``nvinfer1::Dims::MAX_DIMS``."""


def served(specs: Sequence[KernelSpec]) -> tuple[KernelSpec, ...]:
    """Those that get a plugin: gradient operators are not deployed. Raises BuildError for what cannot be one."""
    chosen = tuple(spec for spec in specs if not spec.definition.is_gradient)
    if not chosen:
        raise BuildError(
            "tensorrt: there is no operator to make a plugin of; gradients are not deployed. Name the operator whose"
            " kernels are to run."
        )
    for spec in chosen:
        _check_name(spec.definition)
        _check_attributes(spec.definition)
        _check_ranks(spec.definition)
        _check_kernels(spec)
    _check_names_differ(chosen)
    return chosen


def combinations(spec: KernelSpec) -> tuple[tuple[DType, ...], ...]:
    """The dtypes of those kernels that TensorRT can run."""
    return tuple(found for found in spec.combinations() if all(dtype in SUPPORTED for dtype in found))


def _check_name(definition: Definition) -> None:
    if definition.onnx_name in TAKEN:
        raise BuildError(
            f"{definition.name}: its node is of type `{definition.onnx_name}`, and TensorRT's ONNX parser takes that"
            " for its own operator, whatever the node's domain is: the plugin would never run. Give the operator"
            f' another name, such as onnx_name="My{definition.onnx_name}", and export the model again.'
        )


def _check_names_differ(specs: Sequence[KernelSpec]) -> None:
    seen: dict[str, Definition] = {}
    for spec in specs:
        definition = spec.definition
        if definition.onnx_name in seen:
            raise BuildError(
                f"{definition.name}: {seen[definition.onnx_name].name} is a node of type `{definition.onnx_name}` too,"
                " and TensorRT's ONNX parser does not look at a node's domain. Give one of them another onnx_name."
            )
        seen[definition.onnx_name] = definition


def _check_attributes(definition: Definition) -> None:
    for item in definition.attributes:
        if item.kind.name == "strings":
            raise BuildError(
                f"{definition.name}: attribute `{item.name}` is {item.kind.annotation}, and a field of a TensorRT"
                " plugin holds one string at most. Make it a str with a separator in it, or a list[int]; or leave"
                ' this operator out, and export with fallback="function" or "inline".'
            )
        if item.name in PARSER_ATTRIBUTES:
            raise BuildError(
                f"{definition.name}: attribute `{item.name}` has a meaning of its own to TensorRT's ONNX parser. Give"
                " it another name."
            )


def _check_ranks(definition: Definition) -> None:
    for role, items in (("input", definition.inputs), ("output", definition.outputs)):
        for item in items:
            if len(item.shape.dims) > MAX_DIMS:
                raise BuildError(
                    f'{definition.name}: {role} `{item.name}` is "{item.shape}", {len(item.shape.dims)} dimensions;'
                    f" TensorRT's tensors have {MAX_DIMS} at most. Merge some of them."
                )


def _check_kernels(spec: KernelSpec) -> None:
    definition = spec.definition
    if not spec.sources:
        raise BuildError(
            f"{definition.name}: TensorRT runs CUDA kernels, and this operator has none. Write the same function in a"
            f' CUDA file and name it: kernels=[..., "{definition.base}.cu"].'
        )
    for number, element in enumerate(definition.elements):
        found = tuple(dict.fromkeys(combination[number] for combination in spec.combinations()))
        if not any(dtype in SUPPORTED for dtype in found):
            raise BuildError(_dtype_message(definition, element, found))


def _dtype_message(definition: Definition, element: ElementType, found: Sequence[DType]) -> str:
    roles = [
        f"{role} `{item.name}`"
        for role, items in (("input", definition.inputs), ("output", definition.outputs))
        for item in items
        if item.element == element
    ]
    takes = ", ".join(dtype.name for dtype in SUPPORTED)
    return (
        f"{definition.name}: {roles[0]} is {element.name}, with kernels for {', '.join(item.name for item in found)};"
        f" TensorRT's plugins take {takes}. {_dtype_remedy(element)}"
    )


def _dtype_remedy(element: ElementType) -> str:
    possible = [dtype.name for dtype in SUPPORTED if dtype in element.dtypes]
    if possible:
        return f"Write the kernel for one of these too, and name it in dtypes=[...]: {', '.join(possible)}."
    near = "Int32" if not element.may_be_floating else "Float32"
    return (
        f'Declare it {near} and convert in the model; or leave this operator out, and export with fallback="function".'
    )
