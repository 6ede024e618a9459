"""Writes cases as the file that driver/cases.c reads: 64-bit integers, everything padded to multiples of 8 bytes."""

import ctypes
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oneop.check.cases import Case, flat
from oneop.definition.attributes import AttributeKind
from oneop.definition.dtypes import BY_NAME, DType
from oneop.definition.record import NEEDS, Definition, Output

_MAGIC = b"oneopcs1"
_TAGS = {"float": 1, "int": 2, "bool": 3, "str": 4, "floats": 5, "ints": 6, "strings": 7}  # oneop_attribute_kind
_NONE = 0


def write(path: Path, cases: Sequence[Case]) -> None:
    """Writes the file. It is read by this machine only."""
    with path.open("wb") as file:
        file.write(_MAGIC + _integer(len(cases)))
        for case in cases:
            file.writelines(_case(case))


def dtypes_of(case: Case) -> dict[str, DType]:
    """The dtype of each element type of the definition, by its name."""
    return {element.name: dtype for element, dtype in zip(case.definition.elements, case.structure.dtypes, strict=True)}


def count_of(case: Case, output: Output) -> int:
    """How many tensors an output has."""
    if output.mirrors is None or case.definition.input(output.mirrors).arity != "variadic":
        return 1
    return len(_tensors(case, output.mirrors))


def matters(case: Case, output: Output) -> bool:
    """Whether somebody reads an output: not the gradient that is not asked for."""
    definition = case.definition
    if output.mirrors is None or not definition.is_gradient:
        return True
    bit = definition.differentiates.index(output.mirrors)
    return bool(case.attributes[NEEDS] >> bit & 1) and bool(_tensors(case, output.mirrors))


def _tensors(case: Case, name: str) -> list[Tensor]:
    index = [item.name for item in case.definition.inputs].index(name)
    return flat([case.inputs[index]])


def _case(case: Case) -> Iterator[bytes]:
    definition = case.definition
    yield _text(definition.name)
    yield _integer(len(case.structure.dtypes))
    yield from (_dtype(dtype) for dtype in case.structure.dtypes)
    yield _integer(len(definition.inputs))
    for item, value in zip(definition.inputs, case.inputs, strict=True):
        tensors = flat([value])
        yield _integer(len(tensors))
        for tensor in tensors:
            yield from _tensor(definition, tensor, len(item.shape.dims), grouped=item.shape.batch is not None)
    yield _integer(len(definition.attributes))
    for attribute in definition.attributes:
        yield _attribute(attribute.kind, case.attributes[attribute.name])
    dtypes = dtypes_of(case)
    yield _integer(len(definition.outputs))
    for output in definition.outputs:
        yield _dtype(dtypes[output.element.name])
        yield _integer(count_of(case, output))
        yield _integer(int(matters(case, output)))


def _tensor(definition: Definition, given: Tensor, n_dims: int, *, grouped: bool) -> Iterator[bytes]:
    tensor = given.detach()
    yield _dtype(BY_NAME[str(tensor.dtype).removeprefix("torch.")])
    yield _integers([tensor.ndim, *tensor.shape])
    as_it_is = definition.layout == "strided" and (not grouped or _is_one_group(tensor, tensor.ndim - n_dims))
    yield _integers([1, *tensor.stride()] if as_it_is else [0])
    data = bytes_of(tensor)
    yield _integer(len(data)) + _padded(data)


def _is_one_group(tensor: Tensor, leading: int) -> bool:
    """Whether the leading dimensions can be seen as one, as the contract with kernels promises."""
    dims = [
        (size, step) for size, step in zip(tensor.shape[:leading], tensor.stride()[:leading], strict=True) if size != 1
    ]
    return all(step == size_after * step_after for (_, step), (size_after, step_after) in pairwise(dims))


def bytes_of(tensor: Tensor) -> bytes:
    """The elements in C order."""
    plain = tensor.detach().cpu().contiguous()
    return ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size()) if plain.numel() else b""


def tensor_of(data: bytes, shape: Sequence[int], dtype: DType) -> Tensor:
    """The tensor of elements in C order."""
    kind: torch.dtype = getattr(torch, dtype.name)
    if not data:
        return torch.empty(tuple(shape), dtype=kind)
    return torch.frombuffer(bytearray(data), dtype=kind).reshape(tuple(shape))


def _attribute(kind: AttributeKind, value: Any) -> bytes:
    if value is None:
        return _integer(_NONE)
    tag = _integer(_TAGS[kind.name])
    match kind.name:
        case "float":
            return tag + struct.pack("=d", value)
        case "int" | "bool":
            return tag + _integer(int(value))
        case "str":
            return tag + _text(value)
        case "floats":
            return tag + _integer(len(value)) + struct.pack(f"={len(value)}d", *value)
        case "ints":
            return tag + _integers([len(value), *value])
    return tag + _integer(len(value)) + b"".join(map(_text, value))


def _dtype(dtype: DType) -> bytes:
    return _integers(dtype.dlpack)


def _integer(value: int) -> bytes:
    return struct.pack("=q", value)


def _integers(values: Iterable[int]) -> bytes:
    return b"".join(map(_integer, values))


def _text(text: str) -> bytes:
    data = text.encode()
    return _integer(len(data)) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 8)
