"""Fits the sizes of one call to a definition: checks the inputs, binds dimension names, computes the outputs' shapes.

This is the Python side of ``shapes`` in oneop.h: the C that oneop generates gives the same results and messages. Sizes
may be symbolic integers; whoever passes those passes ``Arithmetic`` that knows them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oneop.definition.dims import (
    Anything,
    Binary,
    Call,
    Dim,
    DimError,
    Expr,
    Name,
    Number,
    Shape,
    Unknown,
    evaluate,
    names,
)
from oneop.definition.record import Definition, Input, Output
from oneop.errors import CallError

Sizes = Sequence[Any]
"""The sizes of one tensor."""


def _require_equal(left: Any, right: Any, message: Callable[[], str]) -> None:
    if left != right:
        raise CallError(message())


def _require_positive_or_zero(value: Any, message: Callable[[], str]) -> None:
    if value < 0:
        raise CallError(message())


@dataclass(frozen=True)
class Arithmetic:
    """How sizes are compared and combined; the default is for plain integers."""

    require_equal: Callable[[Any, Any, Callable[[], str]], None] = _require_equal
    require_not_negative: Callable[[Any, Callable[[], str]], None] = _require_positive_or_zero
    minimum: Callable[[Any, Any], Any] = min
    maximum: Callable[[Any, Any], Any] = max


PLAIN = Arithmetic()


@dataclass
class Binding:
    """The sizes that the inputs of one call gave to the names of a definition.

    ``dims`` maps names to sizes, ``batches`` the names of leading groups to tuples of sizes; ``sources`` says which
    input bound a name.
    """

    definition: Definition
    attributes: Mapping[str, Any]
    shapes: Mapping[str, Sequence[Sizes]]
    arithmetic: Arithmetic = PLAIN
    dims: dict[str, Any] = field(default_factory=dict)
    batches: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def output_shapes(self, output: Output) -> list[tuple[Any, ...]]:
        """The shape of each tensor of an output; a size that only the kernel knows is None."""
        if output.mirrors is not None:
            given = self.shapes[output.mirrors]
            absent = self.definition.input(output.mirrors).arity == "optional" and not given
            return [(0,)] if absent else [tuple(shape) for shape in given]
        leading = self.batches[output.shape.batch] if output.shape.batch is not None else ()
        return [(*leading, *(self._output_size(output, position) for position in range(len(output.shape.dims))))]

    def knows(self, dim: Expr) -> bool:
        """Whether every name in an expression has a value; one that only absent inputs bind has none."""
        return all(name in self.dims or name in self.attributes for name in names(dim))

    def _output_size(self, output: Output, position: int) -> Any:
        dim = output.shape.dims[position]
        if isinstance(dim, Unknown | Anything):
            return None
        value = self._value(dim)
        place = position + (len(self.batches[output.shape.batch]) if output.shape.batch is not None else 0)
        self.arithmetic.require_not_negative(
            value,
            lambda: (
                f"{self.definition.name}: output `{output.name}` would have size {value} in dimension {place} ({dim})"
                f"{self._values(dim)}. Pass inputs and attributes that give a size of 0 or more."
            ),
        )
        return value

    def _value(self, dim: Expr) -> Any:
        scope = {**self.attributes, **self.dims}
        try:
            return evaluate(dim, scope, minimum=self.arithmetic.minimum, maximum=self.arithmetic.maximum)
        except DimError as error:
            raise CallError(
                f"{self.definition.name}: {error}{self._values(dim)}. Pass other attributes or inputs."
            ) from None

    def _values(self, dim: Expr) -> str:
        scope = {**self.attributes, **self.dims}
        found = ", ".join(f"{name} = {scope[name]}" for name in dict.fromkeys(names(dim)))
        return f", with {found}" if found else ""


def bind(
    definition: Definition,
    shapes: Mapping[str, Sequence[Sizes]],
    attributes: Mapping[str, Any],
    arithmetic: Arithmetic = PLAIN,
) -> Binding:
    """Checks the shapes of a call's inputs against the definition. Raises CallError where one does not fit.

    ``shapes`` has for each input the shapes of its tensors: none for an absent optional input, one, or as many as a
    variadic input has. ``attributes`` has a value for each attribute that dimensions name.
    """
    binding = Binding(definition, attributes, shapes, arithmetic)
    tensors = [
        (f"{item.name}[{index}]" if item.arity == "variadic" else item.name, item, tuple(sizes))
        for item in definition.inputs
        for index, sizes in enumerate(shapes[item.name])
    ]
    for label, item, sizes in tensors:
        _bind_names(binding, label, item, sizes)
    for label, item, sizes in tensors:
        _check_expressions(binding, label, item, sizes)
    return binding


def _bind_names(binding: Binding, label: str, item: Input, sizes: tuple[Any, ...]) -> None:
    shape = item.shape
    leading = len(sizes) - len(shape.dims)
    if leading < 0 or (leading > 0 and shape.batch is None):
        raise CallError(_rank_message(binding, label, shape, sizes))
    if shape.batch is not None:
        _bind_batch(binding, label, shape, sizes, sizes[:leading])
    for dim, size in zip(shape.dims, sizes[leading:], strict=True):
        if isinstance(dim, Number):
            binding.arithmetic.require_equal(size, dim.value, lambda: _size_message(binding, label, shape, sizes, ""))
        elif isinstance(dim, Name) and dim.name not in binding.dims:
            binding.dims[dim.name] = size
            binding.sources[dim.name] = label
        elif isinstance(dim, Name):
            _require_size(binding, label, shape, sizes, size, dim, binding.dims[dim.name])


def _bind_batch(binding: Binding, label: str, shape: Shape, sizes: tuple[Any, ...], group: tuple[Any, ...]) -> None:
    name = shape.batch
    assert name is not None
    if name not in binding.batches:
        binding.batches[name] = group
        binding.sources[f"*{name}"] = label
        return
    bound = binding.batches[name]

    def message() -> str:
        return _size_message(
            binding, label, shape, sizes, f", and *{name} is {shown(bound)} here, from `{binding.sources[f'*{name}']}`"
        )

    if len(bound) != len(group):
        raise CallError(message())
    for mine, theirs in zip(group, bound, strict=True):
        binding.arithmetic.require_equal(mine, theirs, message)


def _check_expressions(binding: Binding, label: str, item: Input, sizes: tuple[Any, ...]) -> None:
    own = sizes[len(sizes) - len(item.shape.dims) :]
    for dim, size in zip(item.shape.dims, own, strict=True):
        if isinstance(dim, Binary | Call) and binding.knows(dim):
            _require_size(binding, label, item.shape, sizes, size, dim, binding._value(dim))


def _require_size(
    binding: Binding, label: str, shape: Shape, sizes: tuple[Any, ...], size: Any, dim: Dim, wanted: Any
) -> None:
    def message() -> str:
        source = f", from `{binding.sources[dim.name]}`" if isinstance(dim, Name) else ""
        return _size_message(binding, label, shape, sizes, f", and {dim} is {wanted} here{source}")

    binding.arithmetic.require_equal(size, wanted, message)


def _size_message(binding: Binding, label: str, shape: Shape, sizes: tuple[Any, ...], reason: str) -> str:
    return (
        f"{binding.definition.name}: input `{label}` has shape {shown(sizes)}; its definition is "
        f'"{shape}"{reason}. Pass a tensor that fits.'
    )


def _rank_message(binding: Binding, label: str, shape: Shape, sizes: tuple[Any, ...]) -> str:
    at_least = "at least " if shape.batch is not None else ""
    return (
        f"{binding.definition.name}: input `{label}` has shape {shown(sizes)}, {_dimensions(len(sizes))}; its"
        " definition is "
        f'"{shape}", {at_least}{_dimensions(len(shape.dims))}. Pass a tensor that fits.'
    )


def _dimensions(count: int) -> str:
    return f"{count} dimension" if count == 1 else f"{count} dimensions"


def shown(sizes: Sizes) -> str:
    """Sizes as a Python tuple."""
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
