"""Builds the test host and libraries of plugins, and has the host drive them as TensorRT does."""

import functools
import importlib.util
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from oneop import registry
from oneop.errors import BuildError
from oneop.kernels.building import Library, Unit, build
from oneop.kernels.spec import KernelSpec
from oneop.operator import Operator
from oneop.targets.onnx import nodes
from oneop.targets.plugins import node_attributes
from oneop.targets.tensorrt import library as plugin_library
from oneop.targets.tensorrt.checks import served
from oneop.targets.tensorrt.headers import find_headers

FOLDER = Path(__file__).parents[1] / "tensorrt"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
FLAGS = ("-O0", "-g1", "-Werror", *SANITIZE)

DATA_TYPES = {0: "float32", 1: "float16", 2: "int8", 3: "int32", 4: "bool", 5: "uint8", 7: "bfloat16", 8: "int64"}
"""``nvinfer1::DataType``, as numpy has it."""
NUMBERS = {name: number for number, name in DATA_TYPES.items()}


def _are_headers_missing() -> bool:
    try:
        find_headers()
    except BuildError:
        if os.environ.get("TENSORRT_INCLUDE"):
            raise  # asked for by name
        return True
    return False


needs_headers = pytest.mark.skipif(
    _are_headers_missing(),
    reason=(
        "TensorRT's headers are not here: set TENSORRT_INCLUDE to the folder `include` of the public repository"
        " NVIDIA/TensorRT"
    ),
)


@functools.cache
def operators(name: str) -> dict[str, Operator]:
    """The operators of a file in tests/tensorrt/operators, by their base name."""
    return {item.definition.base: item for item in registry.load_file(FOLDER / "operators" / f"{name}.py")}


def specs_of(name: str) -> tuple[KernelSpec, ...]:
    return served([item.kernel_spec() for item in operators(name).values()])


@functools.cache
def host() -> Path:
    headers = find_headers()
    sources = [FOLDER / "host" / name for name in ("host.cpp", "case.h", "expressions.h")]
    return build(
        Library(
            title="the test host of TensorRT's plugins",
            stem="tensorrt_host",
            units=(Unit("host", "c++", path=sources[0]),),
            flags=("-Wall", "-Wextra", "-Wconversion", *FLAGS, f"-DHEADERS={headers.version[0]}"),
            link_flags=("-ldl",),
            inputs=tuple(sources[1:]),
            system_dirs=headers.folders,
            program=True,
        )
    )


@functools.cache
def library(name: str) -> Path:
    """The library of a file in tests/tensorrt/operators, with the CPU's kernels."""
    return changed_library(name, lambda texts: texts)


def changed_library(name: str, change: Callable[[dict[str, str]], dict[str, str]], **options: Any) -> Path:
    """The same from sources that were changed after they were generated."""
    specs = specs_of(name)
    texts = change(plugin_library.source_texts(specs, **{"bounds": {}, **options}))
    described = plugin_library.stand_in(plugin_library.describe(specs, texts, find_headers()))
    return build(replace(described, flags=(*described.flags, *FLAGS)))


@functools.cache
def pretended_library(name: str) -> Path:
    """A library as TensorRT would load it, but for CUDA: emulated kernels, and host/fake_cudart.cpp for its runtime."""
    location = FOLDER.parent / "cuda" / "emulation.py"
    described = importlib.util.spec_from_file_location("cuda_emulation", location)
    assert described is not None
    assert described.loader is not None
    emulation = importlib.util.module_from_spec(described)
    described.loader.exec_module(emulation)
    specs = served([emulation.emulated(item.kernel_spec("cuda")) for item in operators(name).values()])
    texts = plugin_library.source_texts(specs, bounds={}, workspace=1024)
    made = plugin_library.describe(specs, texts, find_headers())
    runtime = Unit("fake_cudart", "c++", path=FOLDER / "host" / "fake_cudart.cpp")
    return build(
        replace(made, units=(*made.units, runtime), flags=(*made.flags, *FLAGS), stem=f"{made.stem}_pretended")
    )


@dataclass
class Answer:
    """What the host says; ``outputs`` are there unless it failed."""

    error: str
    log: list[str]
    facts: dict[str, Any]
    outputs: list[np.ndarray] = field(default_factory=list)


@dataclass
class Node:
    """A node of an ONNX file, as far as TensorRT's parser looks at it."""

    type: str
    attributes: Sequence[onnx.AttributeProto]

    def without(self, name: str) -> "Node":
        return replace(self, attributes=[item for item in self.attributes if item.name != name])

    def text_of(self, name: str) -> str:
        return next((item.s.decode() for item in self.attributes if item.name == name), "")


def node_of(operator: Operator, inputs: Sequence[Any], values: Mapping[str, Any]) -> Node:
    """The node that oneop.export writes with fallback="none"."""
    definition = operator.definition
    given = {item.name: values.get(item.name, item.default) for item in definition.attributes}
    own = [nodes.proto(item) for item in nodes.attributes(definition, given)]
    counts = [0 if value is None else len(value) if isinstance(value, list) else 1 for value in inputs]
    extra = node_attributes(definition, counts)
    return Node(
        definition.onnx_name, [*own, *(onnx.helper.make_attribute(name, value) for name, value in extra.items())]
    )


def run(
    path: Path, node: Node, inputs: Sequence[np.ndarray | list[np.ndarray] | None], folder: Path, **options: Any
) -> Answer:
    """Has the host drive one plugin. Options are those of a case in case.h."""
    lines = [
        f"library {path}",
        f"creator {node.type} {node.text_of('plugin_version') or '1'} {node.text_of('plugin_namespace') or '-'}",
        f"folder {folder}",
        *(f"attribute {_attribute(item)}" for item in node.attributes),
    ]
    flat = [entry for value in inputs for entry in (value if isinstance(value, list) else [value])]
    while flat and flat[-1] is None:
        flat.pop()  # as the exporter leaves out absent inputs at the end
    for number, array in enumerate(flat):
        lines.append(f"input {_input(array, folder / f'input_{number}')}")
    lines += [f"{name} {int(value) if isinstance(value, bool) else value}" for name, value in options.items()]
    case = folder / "case"
    case.write_text("\n".join([*lines, ""]), encoding="utf-8")
    environment = {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1",
    }
    done = subprocess.run([host(), case], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    facts = json.loads(done.stdout)
    outputs = [_output(item) for item in facts.get("outputs", [])]
    return Answer(facts.pop("error"), facts.pop("log"), facts, outputs)


def _attribute(item: onnx.AttributeProto) -> str:
    kind = onnx.AttributeProto.AttributeType.Name(item.type)
    value = onnx.helper.get_attribute_value(item)
    if kind == "STRING":
        return f"{item.name} STRING {value.hex() or '-'}"
    if kind in ("FLOATS", "INTS"):
        return " ".join([item.name, kind, str(len(value)), *map(repr, value)])
    return f"{item.name} {kind} {value!r}"


def _input(array: np.ndarray | None, path: Path) -> str:
    if array is None:
        return "absent"
    path.write_bytes(np.ascontiguousarray(array).tobytes())
    return f"{NUMBERS[array.dtype.name]} {array.ndim} {' '.join(map(str, array.shape))} {path}"


def _output(item: Mapping[str, Any]) -> np.ndarray:
    name = DATA_TYPES[item["type"]]
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    return np.fromfile(item["file"], dtype=dtype).reshape(item["sizes"])
