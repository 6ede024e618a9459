"""Generates what stands between a kernel and the ABI: its header, the glue around it, the table of a library."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneop.definition.attributes import AttributeKind
from oneop.definition.dims import Anything, Binary, Call, Dim, Expr, Name, Number, Shape, Unknown, names
from oneop.definition.dtypes import DType, ElementType
from oneop.definition.record import NEEDS, Attribute, Definition, Input, Output
from oneop.kernels.expressions import Steps
from oneop.kernels.literals import c_int64, c_string, c_string_struct
from oneop.kernels.rendering import render
from oneop.kernels.spec import DEVICES, LANGUAGES, KernelSpec, Language

Combination = tuple[DType, ...]

_TEMPLATES = Path(__file__).with_name("templates")


def header_name(definition: Definition) -> str:
    return f"{definition.base}.h"


def header_text(*specs: KernelSpec) -> str:
    """The header that an operator's kernels include, on every device: the struct of the arguments, what to write."""
    with_kernels = [spec for spec in specs if spec.sources]
    languages = {
        language for spec in with_kernels for source in spec.sources if (language := LANGUAGES.get(source.suffix))
    } | {spec.language for spec in with_kernels}
    by_language = {spec.language: Kernel(spec) for spec in with_kernels}
    cpp = not languages.isdisjoint(("c++", "cuda"))
    return render(
        _TEMPLATES,
        "header.h.j2",
        k=Kernel((with_kernels or specs)[0]),
        written=[by_language[language] for language in ("c++", "cuda") if language in by_language],
        guard=f"ONEOP_KERNEL_{specs[0].definition.base.upper()}_H",
        cpp=cpp,
        c="c" in languages,
    )


def cpp_glue_text(specs: Sequence[KernelSpec]) -> str:
    """What follows a C++ or CUDA source in its translation unit: the functions of the table, for its kernels."""
    return render(_TEMPLATES, "glue.cpp.j2", kernels=[Kernel(spec) for spec in specs])


def c_glue_text(specs: Sequence[KernelSpec]) -> str:
    """A translation unit with the functions of the table for kernels in C."""
    return render(_TEMPLATES, "glue.c.j2", kernels=[Kernel(spec) for spec in specs])


def table_text(specs: Sequence[KernelSpec]) -> str:
    """A translation unit with the operators' `shapes` and the library's table. Valid C and C++."""
    return render(_TEMPLATES, "table.c.j2", kernels=[Entry(own) for own in by_definition(specs)])


def by_definition(specs: Sequence[KernelSpec]) -> list[tuple[KernelSpec, ...]]:
    """The specs of one operator together: one for each device."""
    grouped: dict[str, list[KernelSpec]] = {}
    for spec in specs:
        grouped.setdefault(spec.definition.name, []).append(spec)
    return [tuple(own) for own in grouped.values()]


def comment_text(text: str) -> str:
    """A text that cannot end or open a comment."""
    return text.replace("*/", "* /").replace("/*", "/ *")


@dataclass(frozen=True)
class Line:
    """One field of a struct, with its comment."""

    code: str
    comment: str = ""


@dataclass(frozen=True)
class Tensor:
    """A tensor parameter or result, as the templates see it."""

    kernel: "Kernel"
    number: int
    parameter: Input | Output

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def is_output(self) -> bool:
        return isinstance(self.parameter, Output)

    @property
    def mirrored(self) -> Input | None:
        """The operator's input whose gradient this is."""
        if isinstance(self.parameter, Input) or self.parameter.mirrors is None:
            return None
        return self.kernel.definition.input(self.parameter.mirrors)

    @property
    def mirrored_number(self) -> int:
        mirrored = self.mirrored
        return -1 if mirrored is None else self.kernel.definition.inputs.index(mirrored)

    @property
    def arity(self) -> str:
        """Of a gradient: that of its input."""
        described = self.mirrored or self.parameter
        return described.arity if isinstance(described, Input) else "required"

    @property
    def shape(self) -> Shape:
        return self.parameter.shape

    @property
    def n_dims(self) -> int:
        return len(self.shape.dims)

    @property
    def grouped(self) -> bool:
        return self.shape.batch is not None

    @property
    def rank(self) -> int:
        """As the kernel sees it."""
        return self.n_dims + self.grouped

    @property
    def group(self) -> int:
        return -1 if self.shape.batch is None else self.kernel.definition.batches.index(self.shape.batch)

    @property
    def strided(self) -> bool:
        return self.kernel.definition.layout == "strided" and not self.is_output

    @property
    def resizable(self) -> bool:
        return self.is_output and self.mirrored is None and any(isinstance(dim, Unknown) for dim in self.shape.dims)

    @property
    def cpp_view(self) -> str:
        const = "" if self.is_output else "const "
        name = "StridedView" if self.strided else "View"
        return f"oneop::{name}<{const}{self.kernel.cpp_element(self.parameter.element)}, {self.rank}>"

    @property
    def cpp_kind(self) -> str:
        """The second argument of the makers of views."""
        if self.resizable:
            return f', {{{"true" if self.grouped else "false"}, {self.number}, "{self.name}"}}'
        return ", {true}" if self.grouped else ""

    @property
    def cpp_line(self) -> Line:
        variadic = self.arity == "variadic"
        code = f"oneop::Views<{self.cpp_view}> {self.name};" if variadic else f"{self.cpp_view} {self.name};"
        return Line(
            code, self._comment("tests false", f"auto {self.name} = ctx.resize(a.{self.name}, {self._sizes()})")
        )

    def c_type(self, combination: Combination) -> str:
        kind = "views" if self.arity == "variadic" else "view"
        const = "" if self.is_output else "const_"
        return f"oneop_{const}{kind}_{self.dtype(combination).short}"

    def c_view(self, combination: Combination) -> str:
        """The type of one element of a variadic input."""
        return f"oneop_{'' if self.is_output else 'const_'}view_{self.dtype(combination).short}"

    def c_line(self, combination: Combination) -> Line:
        resize = f"oneop_resize(ctx, a->{self.name}.output, sizes) returns its memory"
        return Line(f"{self.c_type(combination)} {self.name};", self._comment("not `present`", resize))

    def dtype(self, combination: Combination) -> DType:
        return combination[self.kernel.definition.elements.index(self.parameter.element)]

    def _comment(self, absent: str, resize: str) -> str:
        notes = [f'"{self.shape}"' if str(self.shape) else '"", one value']
        mirrored = self.mirrored
        if mirrored is not None and mirrored.arity == "variadic":
            notes.append(f"one for each of {mirrored.name}")
        elif mirrored is not None and mirrored.arity == "optional":
            notes.append(f"{absent} where {mirrored.name} is absent")
        elif self.arity == "optional":
            notes.append(f"{absent} where it is absent")
        elif self.arity == "variadic":
            notes.append("one or more")
        if self.resizable:
            notes.append(resize)
        if self.strided:
            notes.append("strided")
        return "; ".join(notes)

    def _sizes(self) -> str:
        dims = [*([self.shape.batch] if self.shape.batch else []), *(str(dim).lstrip("?") for dim in self.shape.dims)]
        return f"{{{', '.join(dims)}}}"

    @property
    def dims(self) -> "list[TableDim]":
        return [TableDim(self.kernel, self, position, dim) for position, dim in enumerate(self.shape.dims)]

    @property
    def table_arity(self) -> str:
        if self.is_output:
            return "ONEOP_REQUIRED"
        return {"required": "ONEOP_REQUIRED", "optional": "ONEOP_OPTIONAL_INPUT", "variadic": "ONEOP_VARIADIC"}[
            self.arity
        ]


@dataclass(frozen=True)
class TableDim:
    """A dimension in the table that oneop_fit reads."""

    kernel: "Kernel"
    tensor: Tensor
    position: int
    dim: Dim

    @property
    def name(self) -> str:
        return f"{self.kernel.base}_{self.tensor.name}_{self.position}"

    @property
    def expression(self) -> Expr | None:
        """What is computed; names of dimensions and literals are looked up instead."""
        if isinstance(self.dim, Binary | Call):
            return self.dim
        if isinstance(self.dim, Name) and self.dim.name not in self.kernel.bound_dims:
            return self.dim
        return None

    @property
    def body(self) -> list[str]:
        """The lines of the function that evaluates it."""
        assert self.expression is not None
        sizes = {name: self.kernel.dim_index(name) for name in self.kernel.bound_dims}
        attributes = {item.name: number for number, item in enumerate(self.kernel.definition.attributes)}
        steps = Steps(sizes, attributes)
        result = steps.compute(self.expression)
        return [*steps.lines, f"return {result};"]

    @property
    def terms(self) -> list[tuple[str, int, int]]:
        """Name, whether it is an attribute, and its index, for each name in the expression."""
        if isinstance(self.dim, Unknown | Anything):
            return []
        bound, dims = self.kernel.bound_dims, self.kernel.definition.dims
        return [
            (name, 0, dims.index(name)) if name in bound else (name, 1, self.kernel.attribute_index(name))
            for name in dict.fromkeys(names(self.dim))
        ]

    @property
    def kind(self) -> str:
        match self.dim:
            case Anything():
                return "ONEOP_DIM_ANY"
            case Unknown():
                return "ONEOP_DIM_UNKNOWN"
            case Number():
                return "ONEOP_DIM_LITERAL"
        return "ONEOP_DIM_NAME" if self.expression is None else "ONEOP_DIM_EXPRESSION"

    @property
    def number(self) -> str:
        match self.dim:
            case Number(value):
                return c_int64(value)
            case Name(name) if self.expression is None:
                return str(self.kernel.definition.dims.index(name))
        return "0"


@dataclass(frozen=True)
class AttributeField:
    """An attribute, as the templates see it."""

    number: int
    attribute: Attribute

    @property
    def name(self) -> str:
        return self.attribute.name

    @property
    def kind(self) -> AttributeKind:
        return self.attribute.kind

    @property
    def cpp_line(self) -> Line:
        code = f"std::optional<{self.kind.cpp_type}>" if self.attribute.optional else self.kind.cpp_type
        return Line(f"{code} {self.name};", self._comment)

    @property
    def c_line(self) -> Line:
        code = f"oneop_optional_{self.kind.name}" if self.attribute.optional else self.kind.c_type
        return Line(f"{code} {self.name};", self._comment)

    @property
    def c_value(self) -> str:
        member = {"float": "f", "int": "i", "bool": "i", "str": "s", "floats": "fs", "ints": "is", "strings": "ss"}
        value = f"call->attributes[{self.number}].value.{member[self.kind.name]}"
        return f"{value} != 0" if self.kind.name == "bool" else value

    @property
    def _comment(self) -> str:
        notes = []
        if self.attribute.choices is not None:
            notes.append(f"one of {', '.join(map(_shown, self.attribute.choices))}")
        if not self.attribute.is_required:
            notes.append(f"default {_shown(self.attribute.default)}")
        return "; ".join(notes)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return c_string(value) if isinstance(value, str) else repr(value)


@dataclass(frozen=True)
class Choices:
    """The values that a ``Literal`` attribute may have, as the table's C writes them."""

    number: int
    name: str
    given: tuple[Any, ...]

    @property
    def are_strings(self) -> bool:
        return isinstance(self.given[0], str)

    @property
    def count(self) -> int:
        return len(self.given)

    @property
    def shown(self) -> str:
        return ", ".join(map(repr, self.given))

    @property
    def values(self) -> str:
        return f"{{{', '.join(map(c_string_struct if self.are_strings else c_int64, self.given))}}}"


@dataclass(frozen=True)
class Kernel:
    """One operator's kernel, as the templates see it."""

    spec: KernelSpec

    @property
    def definition(self) -> Definition:
        return self.spec.definition

    @property
    def base(self) -> str:
        return self.definition.base

    @property
    def tag(self) -> str:
        """Its name among the functions that are generated for kernels in C++."""
        return self.base if self.spec.device == "cpu" else f"{self.base}_on_{self.spec.device}"

    @property
    def is_cuda(self) -> bool:
        return self.spec.device == "cuda"

    @property
    def source_name(self) -> str:
        return self.spec.sources[0].name

    @property
    def doc_lines(self) -> list[str]:
        return [comment_text(line).rstrip().rstrip("\\") for line in self.definition.doc.splitlines()]

    @property
    def combinations(self) -> tuple[Combination, ...]:
        return self.spec.combinations()

    @property
    def choices(self) -> list["Choices"]:
        attributes = enumerate(self.definition.attributes)
        return [Choices(number, item.name, item.choices) for number, item in attributes if item.choices is not None]

    # ---- fields

    @property
    def inputs(self) -> list[Tensor]:
        return [Tensor(self, number, item) for number, item in enumerate(self.definition.inputs)]

    @property
    def outputs(self) -> list[Tensor]:
        return [Tensor(self, number, item) for number, item in enumerate(self.definition.outputs)]

    @property
    def tensors(self) -> list[Tensor]:
        return [*self.inputs, *self.outputs]

    @property
    def bound_dims(self) -> list[str]:
        """The names that inputs bind: fields of the arguments."""
        found = dict.fromkeys(name for item in self.definition.inputs for name in item.shape.binds())
        return [name for name in found if name in self.definition.dims]

    @property
    def attributes(self) -> list[AttributeField]:
        hidden = NEEDS if self.definition.is_gradient else ""
        found = [AttributeField(number, item) for number, item in enumerate(self.definition.attributes)]
        return [item for item in found if item.name != hidden]

    @property
    def needs(self) -> list[tuple[str, int, int]]:
        """The operator's inputs that have a gradient: name, bit of `needs`, number among the inputs here.

        Inputs without one, such as integers, have a bit too: it is never looked at.
        """
        numbers = {item.name: number for number, item in enumerate(self.definition.inputs)}
        results = {item.mirrors for item in self.definition.outputs}
        return [
            (name, bit, numbers[name]) for bit, name in enumerate(self.definition.differentiates) if name in results
        ]

    @property
    def needs_index(self) -> int:
        return self.attribute_index(NEEDS)

    def attribute_index(self, name: str) -> int:
        return [item.name for item in self.definition.attributes].index(name)

    def dim_index(self, name: str) -> int:
        return self.definition.dims.index(name)

    def group_places(self, group: str) -> list[tuple[int, int]]:
        """Inputs that have a leading group: number, dimensions behind the group."""
        return [(item.number, item.n_dims) for item in self.inputs if item.shape.batch == group]

    @property
    def shared_unknowns(self) -> list[tuple[str, tuple[int, int], tuple[int, int]]]:
        """`?k` in several places: the name, the first place and another one; output and position from the end."""
        places: dict[str, list[tuple[int, int]]] = {}
        for item in self.outputs:
            for position, dim in enumerate(item.shape.dims):
                if isinstance(dim, Unknown) and item.mirrored is None:
                    places.setdefault(dim.name, []).append((item.number, item.n_dims - position))
        return [(name, found[0], other) for name, found in places.items() for other in found[1:]]

    # ---- C++

    @property
    def variables(self) -> list[ElementType]:
        return [element for element in self.definition.elements if not element.is_fixed]

    def _variable_name(self, element: ElementType) -> str:
        name = "T" if len(self.variables) == 1 else element.name
        fields = {item.name for item in self.tensors} | set(self.bound_dims) | set(self.definition.batches)
        fields |= {item.name for item in self.definition.attributes}
        while name in fields:
            name += "_"
        return name

    @property
    def template_parameters(self) -> list[str]:
        return [self._variable_name(element) for element in self.variables]

    def cpp_element(self, element: ElementType) -> str:
        return element.dtypes[0].cpp_type if element.is_fixed else self._variable_name(element)

    @property
    def template_line(self) -> str:
        """`template <class T>`, or nothing."""
        if not self.variables:
            return ""
        return f"template <{', '.join(f'class {name}' for name in self.template_parameters)}>"

    @property
    def cpp_args(self) -> str:
        """The type of the arguments, inside a template."""
        return f"{self.base}_args" + (f"<{', '.join(self.template_parameters)}>" if self.variables else "")

    @property
    def cpp_declaration(self) -> str:
        function = f"void {self.base}(const {self.cpp_args}& a, oneop::Context& ctx)"
        return f"{self.template_line}\n{function}" if self.variables else function

    @property
    def missing_message(self) -> str:
        return (
            f"{self.source_name} does not define `{' '.join(self.cpp_declaration.split())}`, outside of any namespace"
        )

    @property
    def result_message(self) -> str:
        return f"`{self.base}` in {self.source_name} has to return void; end it with ctx.fail(message) where it fails"

    @property
    def cpp_dtypes(self) -> list[tuple[str, str]]:
        """For each template parameter, the types it stands for."""
        return [
            (self._variable_name(element), ", ".join(self._served(element, "cpp_type"))) for element in self.variables
        ]

    def _served(self, element: ElementType, name: str) -> list[str]:
        index = self.definition.elements.index(element)
        return list(dict.fromkeys(getattr(combination[index], name) for combination in self.combinations))

    def cpp_arguments(self, combination: Combination) -> str:
        """`<float>`, or nothing."""
        types = [item.cpp_type for item, element in self._pairs(combination) if not element.is_fixed]
        return f"<{', '.join(types)}>" if types else ""

    def _pairs(self, combination: Combination) -> list[tuple[DType, ElementType]]:
        return list(zip(combination, self.definition.elements, strict=True))

    @property
    def cpp_lines(self) -> list[str]:
        tensors = [item.cpp_line for item in self.tensors]
        return _aligned([*tensors, *self._size_lines("std::int64_t"), *self._attribute_lines("c++")], "// ", "")

    # ---- C

    def suffix(self, combination: Combination) -> str:
        """`_f32`, or nothing where no dtype varies."""
        return "".join(f"_{item.short}" for item, element in self._pairs(combination) if not element.is_fixed)

    @property
    def c_declarations(self) -> list[str]:
        return [self.c_declaration(combination) for combination in self.combinations]

    def c_declaration(self, combination: Combination) -> str:
        end = self.suffix(combination)
        return f"int {self.base}{end}(const {self.base}_args{end} *a, oneop_context *ctx)"

    def c_lines(self, combination: Combination) -> list[str]:
        tensors = [item.c_line(combination) for item in self.tensors]
        return _aligned([*tensors, *self._size_lines("int64_t"), *self._attribute_lines("c")], "/* ", " */")

    def run_name(self, combination: Combination) -> str:
        return f"oneop_run_{self.tag}{self.suffix(combination)}"

    # ---- shared by both

    def _size_lines(self, integer: str) -> list[Line]:
        sizes = textwrap.wrap(", ".join(self.bound_dims), 90)
        lines = [Line(f"{integer} {part.rstrip(',')};") for part in sizes]
        return lines + [
            Line(f"{integer} {name};", f"*{name}: the leading dimensions, collapsed into one")
            for name in self.definition.batches
            if self.group_places(name)
        ]

    def _attribute_lines(self, language: Language) -> list[Line]:
        lines = [item.cpp_line if language == "c++" else item.c_line for item in self.attributes]
        return lines + [
            Line(f"bool needs_{name};", f"whether grad_{name} is asked for; if not, leave it as it is{absent}")
            for name, _, number in self.needs
            for absent in [f"; false where {name} is absent" if self.inputs[number].arity == "optional" else ""]
        ]


class Entry(Kernel):
    """One operator of a library's table, with its kernels on every device."""

    def __init__(self, specs: Sequence[KernelSpec]) -> None:
        super().__init__(specs[0])
        object.__setattr__(self, "devices", tuple(Kernel(spec) for spec in specs))

    devices: tuple[Kernel, ...]

    @property
    def runs(self) -> list[tuple[str, Combination, int]]:
        """Function, dtypes and DLPack's device type of each kernel."""
        return [
            (kernel.run_name(combination), combination, DEVICES[kernel.spec.device])
            for kernel in self.devices
            for combination in kernel.combinations
        ]


def _aligned(lines: list[Line], opening: str, closing: str) -> list[str]:
    """Code with the comments in one column."""
    width = max((len(line.code) for line in lines if line.comment), default=0)
    return [
        f"{line.code:<{width}} {opening}{comment_text(line.comment)}{closing}" if line.comment else line.code
        for line in lines
    ]
