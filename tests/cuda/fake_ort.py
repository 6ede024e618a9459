"""ONNX Runtime with a GPU, as far as a custom operator's library sees it: its C interface, with numpy arrays as memory.

It asks a library's CUDA registrations what the runtime asks them, and keeps account of what they take and give back.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

_TYPES = {1: np.float32, 7: np.int64, 9: np.bool_, 6: np.int32, 10: np.float16, 11: np.float64, 16: ml_dtypes.bfloat16}
_MEMORY, _ALLOCATOR = 0x1000, 0x2000
_POINTER = ctypes.c_void_p

_FIELDS = (
    *("CreateKernel", "GetName", "GetExecutionProviderType", "GetInputType", "GetInputTypeCount", "GetOutputType"),
    *("GetOutputTypeCount", "KernelCompute", "KernelDestroy", "GetInputCharacteristic", "GetOutputCharacteristic"),
    *("GetInputMemoryType", "GetVariadicInputMinArity", "GetVariadicInputHomogeneity", "GetVariadicOutputMinArity"),
    *("GetVariadicOutputHomogeneity", "CreateKernelV2", "KernelComputeV2", "InferOutputShapeFn"),
)


class _Op(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), *((name, _POINTER) for name in _FIELDS))


class _Base(ctypes.Structure):
    _fields_ = (("get_api", _POINTER), ("get_version", _POINTER))


class FakeError(Exception):
    """The message of a status."""


@dataclass
class Registration:
    """One operator with one combination of dtypes on one provider, as the library registered it."""

    runtime: "FakeRuntime"
    address: int

    @property
    def name(self) -> str:
        return str(self._ask("GetName", ctypes.c_char_p).decode())

    @property
    def provider(self) -> str | None:
        found = self._ask("GetExecutionProviderType", ctypes.c_char_p)
        return None if found is None else found.decode()

    @property
    def input_types(self) -> tuple[type, ...]:
        return self._types("Input")

    @property
    def output_types(self) -> tuple[type, ...]:
        return self._types("Output")

    @property
    def memory_types(self) -> set[int]:
        count = self._ask("GetInputTypeCount", ctypes.c_size_t)
        return {self._ask("GetInputMemoryType", ctypes.c_int, index) for index in range(count)}

    def _types(self, which: str) -> tuple[type, ...]:
        count = self._ask(f"Get{which}TypeCount", ctypes.c_size_t)
        return tuple(_TYPES.get(self._ask(f"Get{which}Type", ctypes.c_int, index), object) for index in range(count))

    def _ask(self, name: str, result: Any, *arguments: int) -> Any:
        return self.function(name, result, _POINTER, *(ctypes.c_size_t for _ in arguments))(self.address, *arguments)

    def function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        address = getattr(_Op.from_address(self.address), name)
        return ctypes.CFUNCTYPE(result, *arguments)(address)

    def run(
        self,
        inputs: Sequence[np.ndarray | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        n_outputs: int = 1,
        stream: int = 0,
        device: int = 0,
    ) -> list[np.ndarray]:
        """Makes a kernel, computes once and destroys it; the outputs, as they were allocated."""
        runtime = self.runtime
        runtime.node = _Node(list(inputs), dict(attributes or {}), n_outputs, stream, device, types=self.output_types)
        kernel = _POINTER()
        create = self.function("CreateKernelV2", _POINTER, _POINTER, _POINTER, _POINTER, _POINTER)
        runtime.check(create(self.address, runtime.api_address, 1, ctypes.addressof(kernel)))
        try:
            runtime.check(self.function("KernelComputeV2", _POINTER, _POINTER, _POINTER)(kernel, 1))
        finally:
            self.function("KernelDestroy", None, _POINTER)(kernel)
        return [runtime.node.outputs[index] for index in sorted(runtime.node.outputs)]


@dataclass
class _Node:
    inputs: list[np.ndarray | None]
    attributes: dict[str, Any]
    n_outputs: int
    stream: int
    device: int
    outputs: dict[int, np.ndarray] = field(default_factory=dict)
    types: tuple[type, ...] = ()


_all: "list[FakeRuntime]" = []
"""A library keeps what it made for a runtime, by the runtime's address: no other may get that one."""


class FakeRuntime:
    """One ONNX Runtime of a release, into which one library has been registered."""

    def __init__(self, library: Path, release: str = "1.18.0") -> None:
        _all.append(self)
        self.registrations: list[Registration] = []
        self.scratch: dict[int, np.ndarray] = {}
        self.freed = 0
        self.room = 1 << 30
        self.asked_for: list[int] = []
        self.node = _Node([], {}, 0, 0, 0)
        self.loaded = ctypes.CDLL(str(library))
        self._statuses: dict[int, bytes] = {}
        self._keep: list[Any] = []
        self._table = (_POINTER * 430)()
        self._fill()
        self.api_address = ctypes.addressof(self._table)
        self._release = ctypes.create_string_buffer(release.encode())
        get_api = ctypes.CFUNCTYPE(_POINTER, ctypes.c_uint32)(self._get_api)
        get_version = ctypes.CFUNCTYPE(_POINTER)(lambda: ctypes.addressof(self._release))
        self._keep += [get_api, get_version]
        self._base = _Base(ctypes.cast(get_api, _POINTER), ctypes.cast(get_version, _POINTER))
        register = self.loaded.RegisterCustomOps
        register.restype, register.argtypes = _POINTER, [_POINTER, _POINTER]
        self.check(register(1, ctypes.addressof(self._base)))

    def on(self, provider: str | None, name: str, *types: type) -> Registration:
        """The registration for a provider, with these types of its first inputs."""
        (found,) = [
            item
            for item in self.registrations
            if item.provider == provider and item.name == name and item.input_types[: len(types)] == types
        ]
        return found

    def check(self, status: int | None) -> None:
        if status:
            raise FakeError(self._statuses.pop(status).decode())

    def _get_api(self, version: int) -> int:
        self.asked_for.append(version)
        return self.api_address

    def _entry(self, index: int, function: Callable[..., Any], result: Any, *arguments: Any) -> None:
        pointer = ctypes.CFUNCTYPE(result, *arguments)(function)
        self._keep.append(pointer)
        self._table[index] = ctypes.cast(pointer, _POINTER).value

    def _status(self, code: int, message: bytes) -> int:
        number = 0x9000 + len(self._keep) + len(self._statuses)
        self._statuses[number] = message
        return number

    def _fill(self) -> None:
        p, size, text = _POINTER, ctypes.c_size_t, ctypes.c_char_p
        entry = self._entry
        entry(0, self._status, p, ctypes.c_int, text)
        entry(2, lambda status: self._message(status), p, p)
        entry(93, lambda status: self._statuses.pop(status, None) and None, None, p)
        entry(26, lambda name, out: _put(out, 7), p, text, p)
        entry(27, self._add, p, p, p)
        entry(28, lambda options, domain: None, p, p, p)
        entry(130, lambda options, key, value: None, p, p, text, text)
        entry(237, lambda options, key, out: _put(out, 0, ctypes.c_int), p, p, text, p)
        entry(244, self._node_name, p, p, p, p)
        entry(230, lambda info, out: _put(out, len(self.node.inputs)), p, p, p)
        entry(231, lambda info, out: _put(out, self.node.n_outputs), p, p, p)
        entry(85, lambda info, name, out: self._number(name, out, float, ctypes.c_float), p, p, text, p)
        entry(86, lambda info, name, out: self._number(name, out, int, ctypes.c_int64), p, p, text, p)
        entry(87, self._string, p, p, text, p, p)
        entry(162, lambda info, name, out, n: self._numbers(name, out, n, float, ctypes.c_float), p, p, text, p, p)
        entry(163, lambda info, name, out, n: self._numbers(name, out, n, int, ctypes.c_int64), p, p, text, p, p)
        entry(234, lambda info, index, out: self._status(1, b"the model does not say"), p, p, size, p)
        entry(90, self._input, p, p, size, p)
        entry(91, self._output, p, p, size, p, size, p)
        entry(51, lambda value, out: _put(out, self._array(value).ctypes.data), p, p, p)
        entry(65, lambda value, out: _put(out, value), p, p, p)
        entry(99, lambda info: None, None, p)
        entry(61, lambda info, out: _put(out, self._array(info).ndim), p, p, p)
        entry(62, self._sizes, p, p, p, size)
        entry(193, lambda context, out: _put(out, self.node.stream), p, p, p)
        entry(194, lambda value, out: _put(out, _MEMORY), p, p, p)
        entry(72, lambda memory, out: _put(out, self.node.device, ctypes.c_int), p, p, p)
        entry(253, lambda context, memory, out: _put(out, _ALLOCATOR), p, p, p, p)
        entry(277, self._scratch, p, p, p, size, p)
        entry(76, self._free, p, p, p)
        entry(132, lambda allocator: None, None, p)

    def _message(self, status: int) -> int:
        buffer = ctypes.create_string_buffer(self._statuses[status])
        self._keep.append(buffer)
        return ctypes.addressof(buffer)

    def _add(self, domain: int, op: int) -> None:
        self.registrations.append(Registration(self, op))

    def _node_name(self, info: int, out: int | None, size: int) -> None:
        if out:
            ctypes.memmove(out, b"node\0", 5)
        return _put(size, 5)

    def _number(self, name: bytes, out: int, kind: type, c_type: Any) -> int | None:
        value = self.node.attributes.get(name.decode())
        if type(value) is not kind:
            return self._status(1, b"no such attribute")
        return _put(out, value, c_type)

    def _numbers(self, name: bytes, out: int | None, size: int, kind: type, c_type: Any) -> int | None:
        value = self.node.attributes.get(name.decode())
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            return self._status(1, b"no such attribute")
        if out:
            ctypes.memmove(out, (c_type * len(value))(*value), ctypes.sizeof(c_type) * len(value))
        return _put(size, len(value))

    def _string(self, info: int, name: bytes, out: int | None, size: int) -> int | None:
        value = self.node.attributes.get(name.decode())
        if not isinstance(value, str):
            return self._status(1, b"no such attribute")
        data = value.encode() + b"\0"
        if out:
            ctypes.memmove(out, data, len(data))
        return _put(size, len(data))

    def _array(self, value: int) -> np.ndarray:
        """Values are numbered: inputs from 1, outputs from 1001."""
        found = self.node.inputs[value - 1] if value <= 1000 else self.node.outputs[value - 1001]
        assert found is not None
        return found

    def _input(self, context: int, index: int, out: int) -> None:
        return _put(out, 0 if self.node.inputs[index] is None else index + 1)

    def _output(self, context: int, index: int, sizes: int, count: int, out: int) -> None:
        shape = tuple((ctypes.c_int64 * count).from_address(sizes)) if count else ()
        self.node.outputs[index] = np.empty(shape, self.node.types[index])
        return _put(out, 1001 + index)

    def _sizes(self, info: int, out: int, count: int) -> None:
        shape = self._array(info).shape
        ctypes.memmove(out, (ctypes.c_int64 * len(shape))(*shape), 8 * len(shape))

    def _scratch(self, context: int, memory: int, size: int, out: int) -> int | None:
        assert memory == _MEMORY
        if size > self.room:
            return self._status(1, b"the arena of the GPU is full")
        block = np.empty(size, np.uint8)
        self.scratch[block.ctypes.data] = block
        return _put(out, block.ctypes.data)

    def _free(self, allocator: int, memory: int) -> None:
        assert allocator == _ALLOCATOR
        del self.scratch[memory]
        self.freed += 1


def _put(address: int, value: int | float, c_type: Any = ctypes.c_uint64) -> None:
    c_type.from_address(address).value = value
