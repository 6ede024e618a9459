"""Renders the C++ that describes operators to TensorRT, from their definitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from oneop.definition.attributes import REQUIRED
from oneop.definition.dims import Expr, Unknown
from oneop.definition.dtypes import DTYPES
from oneop.definition.record import Attribute, Definition, Input, Output
from oneop.kernels.generate import comment_text
from oneop.kernels.literals import c_double, c_int64, c_string
from oneop.kernels.rendering import render
from oneop.kernels.spec import KernelSpec
from oneop.targets.plugins import PLUGIN_NAMESPACE, PLUGIN_VERSION
from oneop.targets.tensorrt.checks import combinations
from oneop.targets.tensorrt.dtypes import SUPPORTED, TENSORRT_TYPES
from oneop.targets.tensorrt.shapes import shape_lines, unknown_names

SUPPORT = ("oneop_tensorrt.h", "oneop_tensorrt.cpp")
"""What is the same for every operator: a header, and its implementation."""

Bounds = Mapping[str, Mapping[str, Expr]]
"""For each operator, by ``namespace::base``, the bounds of its unknown sizes."""


def plugin_text(specs: Sequence[KernelSpec], *, title: str, bounds: Bounds, workspace: int) -> str:
    """The file that describes the operators: ``<stem>_plugin.cpp``."""
    return render(
        Path(__file__).with_name("templates"),
        "plugin.cpp.j2",
        title=title,
        types=[(dtype, TENSORRT_TYPES[dtype.name]) for dtype in SUPPORTED],
        operators=[_Operator(spec, bounds.get(spec.definition.name, {})) for spec in specs],
        workspace=workspace,
    )


def support_text(name: str) -> str:
    return (files("oneop.targets.tensorrt") / "include" / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class _Tensor:
    """An input or output, as the template writes it."""

    definition: Definition
    parameter: Input | Output

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def arity(self) -> str:
        return self.parameter.arity if isinstance(self.parameter, Input) else "required"

    @property
    def element(self) -> int:
        return self.definition.elements.index(self.parameter.element)

    @property
    def type(self) -> str:
        """Of an output whose dtype no input has; of others, a first guess."""
        found = (dtype for dtype in self.parameter.element.dtypes if dtype in SUPPORTED)
        return TENSORRT_TYPES[next(found).name]

    @property
    def comment(self) -> str:
        return f'{self.parameter.element.name} "{self.parameter.shape}"'


@dataclass(frozen=True)
class _UnknownSize:
    """The first place of a size that only the kernel knows."""

    name: str
    output: int
    from_end: int


@dataclass(frozen=True)
class _Attribute:
    """An attribute, as the template writes it."""

    attribute: Attribute

    @property
    def name(self) -> str:
        return self.attribute.name

    @property
    def tag(self) -> str:
        return self.attribute.kind.tag

    @property
    def required(self) -> str:
        return "true" if self.attribute.is_required and not self.attribute.optional else "false"

    @property
    def value(self) -> str:
        """What stands for it where it is not given."""
        default = self.attribute.default
        return "{}" if default is REQUIRED or default is None else _value(self.attribute, default)

    @property
    def comment(self) -> str:
        optional = " | None" if self.attribute.optional else ""
        choices = f", one of {', '.join(map(repr, self.attribute.choices))}" if self.attribute.choices else ""
        return _plain(f"{self.attribute.kind.annotation}{optional}{choices}")


def _value(attribute: Attribute, value: Any) -> str:
    match attribute.kind.name:
        case "float":
            return f"trt::Value({c_double(value)})"
        case "int":
            return f"trt::Value({c_int64(value)})"
        case "bool":
            return f"trt::Value({'true' if value else 'false'})"
        case "str":
            return f"trt::Value({_text(value)})"
        case "floats":
            return f"trt::Value(std::vector<double>{{{', '.join(map(c_double, value))}}})"
        case "ints":
            return f"trt::Value(std::vector<int64_t>{{{', '.join(map(c_int64, value))}}})"
    raise AssertionError(f"{attribute.name} has a kind that TensorRT has no field for: {attribute.kind.name}")


def _text(value: str) -> str:
    return f"std::string({c_string(value)}, {len(value.encode())})"


def _plain(text: str) -> str:
    """A text that stays in its line of comment."""
    return comment_text(" ".join(text.split())).rstrip("\\")


@dataclass(frozen=True)
class _Operator:
    """An operator, as the template writes it."""

    spec: KernelSpec
    bounds: Mapping[str, Expr]

    @property
    def definition(self) -> Definition:
        return self.spec.definition

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def base(self) -> str:
        return self.definition.base

    @property
    def plugin(self) -> str:
        return self.definition.onnx_name

    @property
    def version(self) -> str:
        return PLUGIN_VERSION

    @property
    def name_space(self) -> str:
        return PLUGIN_NAMESPACE

    @property
    def fingerprint(self) -> str:
        return self.definition.fingerprint

    @property
    def signature(self) -> list[str]:
        """What a reader has to know before the code."""
        lines = [f"{self.plugin}, a node of the domain {self.definition.namespace}."]
        if self.definition.doc:
            lines.append(_plain(self.definition.doc.splitlines()[0]))
        left_out = [dtype for dtype in DTYPES if dtype not in SUPPORTED and self._has(dtype.name)]
        lines.append(f"Kernels: {'; '.join(', '.join(dtype.name for dtype in found) for found in self._served)}.")
        if left_out:
            lines.append(f"TensorRT's plugins do not take {', '.join(dtype.name for dtype in left_out)}.")
        return lines

    @property
    def _served(self) -> list[list[Any]]:
        return [list(found) for found in combinations(self.spec)]

    def _has(self, dtype: str) -> bool:
        return any(item.name == dtype for found in self.spec.combinations() for item in found)

    @property
    def shape_lines(self) -> list[str]:
        return shape_lines(self.definition, self.bounds)

    @property
    def inputs(self) -> list[_Tensor]:
        return [_Tensor(self.definition, item) for item in self.definition.inputs]

    @property
    def outputs(self) -> list[_Tensor]:
        return [_Tensor(self.definition, item) for item in self.definition.outputs]

    @property
    def unknowns(self) -> list[_UnknownSize]:
        places: dict[str, _UnknownSize] = {}
        for number, output in enumerate(self.definition.outputs):
            for position, dim in enumerate(output.shape.dims):
                if isinstance(dim, Unknown):
                    place = _UnknownSize(dim.name, number, len(output.shape.dims) - position)
                    places.setdefault(dim.name, place)
        return [places[name] for name in unknown_names(self.definition)]

    @property
    def attributes(self) -> list[_Attribute]:
        return [_Attribute(item) for item in self.definition.attributes]
