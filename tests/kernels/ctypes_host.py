"""A runtime for kernel libraries in Python, for tests: it does what oneop.h asks of a host, through ctypes."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oneop.definition.dtypes import BY_NAME, DType
from oneop.definition.record import Definition

UNKNOWN = -(2**63)
MAX_NDIM = 32
THREADS = 4


class Device(Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class DataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", Device),
        ("ndim", c_int32),
        ("dtype", DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class Argument(Structure):
    _fields_ = [("tensors", POINTER(Tensor)), ("count", c_int64)]


class Span(Structure):
    """oneop_string, oneop_floats, oneop_ints and oneop_strings."""

    _fields_ = [("data", c_void_p), ("size", c_int64)]


class Value(Union):
    _fields_ = [("f", c_double), ("i", c_int64), ("span", Span)]


class Attribute(Structure):
    _fields_ = [("kind", c_int64), ("value", Value)]


Body = CFUNCTYPE(None, c_void_p, c_int64, c_int64)
ParallelFor = CFUNCTYPE(None, c_void_p, c_int64, c_int64, c_int64, Body, c_void_p)
Scratch = CFUNCTYPE(c_void_p, c_void_p, c_size_t)
Resize = CFUNCTYPE(c_void_p, c_void_p, c_int32, POINTER(c_int64), c_int32)
Fail = CFUNCTYPE(None, c_void_p, c_char_p)


class Context(Structure):
    _fields_ = [
        ("parallel_for", ParallelFor),
        ("scratch", Scratch),
        ("resize", Resize),
        ("fail", Fail),
        ("stream", c_void_p),
    ]


class Call(Structure):
    _fields_ = [
        ("inputs", POINTER(Argument)),
        ("outputs", POINTER(Argument)),
        ("attributes", POINTER(Attribute)),
        ("dims", POINTER(c_int64)),
        ("context", POINTER(Context)),
    ]


Function = CFUNCTYPE(c_int, POINTER(Call))


class Kernel(Structure):
    _fields_ = [("dtypes", POINTER(DataType)), ("device_type", c_int32), ("run", Function)]


class Operator(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("fingerprint", c_char_p),
        ("n_inputs", c_int32),
        ("n_outputs", c_int32),
        ("n_attributes", c_int32),
        ("n_dims", c_int32),
        ("n_dtypes", c_int32),
        ("n_kernels", c_int32),
        ("shapes", Function),
        ("kernels", POINTER(Kernel)),
    ]


class LibraryTable(Structure):
    _fields_ = [("abi_version", c_uint32), ("n_operators", c_int32), ("operators", POINTER(Operator))]


class HostError(Exception):
    """The message of a call that failed."""


@dataclass(frozen=True)
class Array:
    """A numpy array and what its elements are; bfloat16 is kept as its 16 bits."""

    values: np.ndarray
    dtype: DType


def array(values: Any, dtype: str = "float32") -> Array:
    if dtype == "bfloat16":
        return Array(to_bfloat16(values), BY_NAME[dtype])
    return Array(np.asarray(values, dtype), BY_NAME[dtype])


def to_bfloat16(values: Any) -> np.ndarray:
    import torch

    return torch.as_tensor(np.asarray(values, "float64")).to(torch.bfloat16).view(torch.int16).numpy().view("uint16")


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype("uint32") << 16).view("float32")


def _storage(dtype: DType) -> np.dtype:
    return np.dtype("uint16" if dtype.name == "bfloat16" else dtype.name)


@dataclass
class Result:
    outputs: dict[str, list[np.ndarray]]
    dims: dict[str, int]

    def __getitem__(self, name: str) -> np.ndarray:
        (only,) = self.outputs[name]
        return only


@dataclass
class Host:
    """Loads a library and calls its operators. `scratch_limit` bounds the scratch memory of a call, in bytes."""

    path: Path
    definitions: Sequence[Definition]
    scratch_limit: int = 2**30
    _operators: dict[str, Operator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._library = CDLL(str(self.path))
        entry = self._library.oneop_library_v1
        entry.restype = POINTER(LibraryTable)
        self.table = entry().contents
        for index in range(self.table.n_operators):
            operator = self.table.operators[index]
            self._operators[operator.name.decode()] = operator

    def operator(self, definition: Definition) -> Operator:
        operator = self._operators[definition.name]
        assert operator.fingerprint.decode() == definition.fingerprint
        return operator

    def shapes(
        self,
        base: str,
        shapes: Mapping[str, Sequence[Sequence[int]]],
        attributes: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, list[tuple[int, ...]]], dict[str, int]]:
        """The shapes of the outputs and the sizes of names. `shapes` has a list of shapes for each input."""
        definition = self._definition(base)
        call = _Call(self, definition, attributes or {})
        for item in definition.inputs:
            call.add_input([_describe(tuple(shape)) for shape in shapes[item.name]])
        call.add_outputs()
        call.check(self.operator(definition).shapes)
        found = [[call.shape(tensor) for tensor in tensors] for tensors in call.outputs]
        return dict(zip([item.name for item in definition.outputs], found, strict=True)), call.sizes()

    def run(self, base: str, *inputs: Any, **attributes: Any) -> Result:
        """Calls the kernel for the inputs' dtypes. An input is an Array, None, or a list of Arrays."""
        definition = self._definition(base)
        call = _Call(self, definition, attributes)
        given = [item if isinstance(item, list) else [] if item is None else [item] for item in inputs]
        for tensors in given:
            call.add_input([call.tensor(tensor) for tensor in tensors])
        call.add_outputs()
        operator = self.operator(definition)
        call.check(operator.shapes)
        dtypes = _dtypes(definition, given)
        call.allocate(dtypes)
        call.check(_kernel(operator, [dtypes[element.name] for element in definition.elements]).run)
        outputs = [[call.result(tensor) for tensor in tensors] for tensors in call.outputs]
        return Result(dict(zip([item.name for item in definition.outputs], outputs, strict=True)), call.sizes())

    def _definition(self, base: str) -> Definition:
        return next(item for item in self.definitions if item.base == base)


def _describe(shape: tuple[int, ...]) -> Tensor:
    return Tensor(device=Device(1, 0), ndim=len(shape), shape=(c_int64 * max(len(shape), 1))(*shape))


def _dtypes(definition: Definition, given: Sequence[Sequence[Array]]) -> dict[str, DType]:
    found = {element.name: element.dtypes[0] for element in definition.elements if element.is_fixed}
    for item, tensors in zip(definition.inputs, given, strict=True):
        for tensor in tensors:
            assert found.setdefault(item.element.name, tensor.dtype) == tensor.dtype
    return found


def _kernel(operator: Operator, dtypes: Sequence[DType]) -> Kernel:
    wanted = [(*dtype.dlpack, 1) for dtype in dtypes]
    for index in range(operator.n_kernels):
        kernel = operator.kernels[index]
        served = [(d.code, d.bits, d.lanes) for d in (kernel.dtypes[i] for i in range(operator.n_dtypes))]
        if served == wanted:
            assert kernel.device_type == 1
            return kernel
    raise LookupError(f"{operator.name} has no kernel for {[dtype.name for dtype in dtypes]}")


class _Call:
    """One call, and all the memory that it needs."""

    def __init__(self, host: Host, definition: Definition, attributes: Mapping[str, Any]) -> None:
        self.host = host
        self.definition = definition
        self.message: str | None = None
        self.keep: list[Any] = []
        self.memory: dict[int, np.ndarray] = {}
        self.used = 0
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        callbacks = ParallelFor(self._parallel_for), Scratch(self._scratch), Resize(self._resize), Fail(self._fail)
        self.context = Context(*callbacks)
        self.dims = (c_int64 * max(len(definition.dims), 1))()
        values = [attributes.get(item.name, item.default) for item in definition.attributes]
        self.attributes = (Attribute * max(len(values), 1))(
            *(self._attribute(item.kind.name, value) for item, value in zip(definition.attributes, values, strict=True))
        )

    # ---- tensors

    def tensor(self, given: Array) -> Tensor:
        values = given.values
        tensor = _describe(values.shape)
        # An offset that is not 0, so that nobody may forget it.
        tensor.byte_offset = given.values.itemsize
        tensor.data = values.ctypes.data - tensor.byte_offset
        tensor.dtype = DataType(*given.dtype.dlpack, 1)
        if not values.flags.c_contiguous:
            steps = [step // values.itemsize for step in values.strides]
            tensor.strides = (c_int64 * max(len(steps), 1))(*steps)
        self.keep.append(values)
        return tensor

    def add_input(self, tensors: list[Tensor]) -> None:
        self.inputs.append((Tensor * max(len(tensors), 1))(*tensors))
        self.inputs[-1].count = len(tensors)

    def add_outputs(self) -> None:
        for item in self.definition.outputs:
            count = 1
            if item.mirrors is not None and self.definition.input(item.mirrors).arity == "variadic":
                number = [other.name for other in self.definition.inputs].index(item.mirrors)
                count = self.inputs[number].count
            room = [Tensor(shape=(c_int64 * MAX_NDIM)(), device=Device(1, 0)) for _ in range(count)]
            self.outputs.append((Tensor * count)(*room))
            self.outputs[-1].count = count

    def allocate(self, dtypes: Mapping[str, DType]) -> None:
        for item, tensors in zip(self.definition.outputs, self.outputs, strict=True):
            for tensor in tensors:
                tensor.dtype = DataType(*dtypes[item.element.name].dlpack, 1)
                if UNKNOWN not in self.shape(tensor):
                    self._give_memory(tensor)

    def _give_memory(self, tensor: Tensor) -> None:
        dtype = next(d for d in BY_NAME.values() if d.dlpack == (tensor.dtype.code, tensor.dtype.bits))
        # Room in front and behind that has to stay as it is.
        count = int(np.prod(self.shape(tensor), dtype=np.int64))
        memory = np.full((count + 16) * _storage(dtype).itemsize, 0xA5, "uint8")
        tensor.byte_offset = 8 * _storage(dtype).itemsize
        tensor.data = memory.ctypes.data
        self.memory[memory.ctypes.data] = memory
        self.keep.append(memory)

    def result(self, tensor: Tensor) -> np.ndarray:
        dtype = next(d for d in BY_NAME.values() if d.dlpack == (tensor.dtype.code, tensor.dtype.bits))
        memory = self.memory[tensor.data]
        margin = 8 * _storage(dtype).itemsize
        assert (memory[:margin] == 0xA5).all(), "the kernel wrote in front of an output"
        assert (memory[len(memory) - margin :] == 0xA5).all(), "the kernel wrote behind an output"
        values = memory[margin : len(memory) - margin].view(_storage(dtype)).reshape(self.shape(tensor))
        return from_bfloat16(values) if dtype.name == "bfloat16" else values

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        return tuple(tensor.shape[d] for d in range(tensor.ndim))

    def sizes(self) -> dict[str, int]:
        return dict(zip(self.definition.dims, self.dims, strict=False))

    # ---- the call

    def check(self, function: Callable[[Any], int]) -> None:
        inputs = (Argument * len(self.inputs))(*(Argument(item, item.count) for item in self.inputs))
        outputs = (Argument * len(self.outputs))(*(Argument(item, item.count) for item in self.outputs))
        call = Call(inputs, outputs, self.attributes, self.dims, ctypes.pointer(self.context))
        status = function(ctypes.byref(call))
        if status != 0 or self.message is not None:
            assert self.message is not None, "the call failed and said nothing"
            raise HostError(self.message)

    def _attribute(self, kind: str, value: Any) -> Attribute:
        if value is None:
            return Attribute(0, Value(i=-1))
        match kind:
            case "float":
                return Attribute(1, Value(f=value))
            case "int":
                return Attribute(2, Value(i=value))
            case "bool":
                return Attribute(3, Value(i=int(value)))
            case "str":
                return Attribute(4, Value(span=self._string(value)))
            case "floats":
                return Attribute(5, Value(span=self._span((c_double * len(value))(*value))))
            case "ints":
                return Attribute(6, Value(span=self._span((c_int64 * len(value))(*value))))
            case "strings":
                return Attribute(7, Value(span=self._span((Span * len(value))(*map(self._string, value)))))
        raise AssertionError(kind)

    def _string(self, text: str) -> Span:
        data = text.encode()
        return self._span((ctypes.c_char * len(data))(*data))

    def _span(self, items: Any) -> Span:
        self.keep.append(items)
        return Span(ctypes.addressof(items) if len(items) else None, len(items))

    # ---- what the context offers

    def _parallel_for(self, context: int, begin: int, end: int, grain: int, body: Any, data: int) -> None:
        assert begin < end
        assert grain >= 1
        step = max(grain, -(-(end - begin) // THREADS))
        with ThreadPoolExecutor(THREADS) as threads:
            for start in range(begin, end, step):
                threads.submit(body, data, start, min(start + step, end))

    def _scratch(self, context: int, size: int) -> int | None:
        self.used += size
        if size == 0 or self.used > self.host.scratch_limit:
            return None
        memory = np.full(size + 64, 0xA5, "uint8")
        self.keep.append(memory)
        return -(-memory.ctypes.data // 64) * 64

    def _resize(self, context: int, output: int, sizes: Any, ndim: int) -> int | None:
        tensor = self.outputs[output][0]
        if any(sizes[d] > 10**6 for d in range(ndim)):
            self._fail(context, b"the host has no memory for this")
            return None
        tensor.ndim = ndim
        for d in range(ndim):
            tensor.shape[d] = sizes[d]
        self._give_memory(tensor)
        return ctypes.addressof(tensor)

    def _fail(self, context: int, message: bytes) -> None:
        self.message = self.message or message.decode()
