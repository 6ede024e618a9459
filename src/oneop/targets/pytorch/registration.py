"""Makes an operator known to torch: schema, shapes for tracing, reference twin, and Python or native implementation."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.library import Library

from oneop import registry
from oneop.definition.record import Definition, Output
from oneop.errors import DefinitionError, OneopError
from oneop.targets.pytorch import autocast, autograd, differentiable, native, scalars, sharding
from oneop.targets.pytorch.inputs import check_inputs
from oneop.targets.pytorch.reference import output_dtype, placeholder, run_reference
from oneop.targets.pytorch.schema import schema_text
from oneop.targets.pytorch.vmap import vmap_implementation

if TYPE_CHECKING:
    from oneop.operator import Operator

_schemas: dict[str, Library] = {}
"""A library a namespace, which holds what never changes: schemas, fake kernels and twins."""

MOST_PARAMETERS = 64
"""What torch's dispatcher takes."""

_implementations: dict[str, Library] = {}
"""A library an operator, which holds what is replaced: its Python implementation, or the stub of a native one."""


def register(operator: "Operator") -> None:
    """Registers an operator with torch's dispatcher, or puts a new definition of the same operator in place.

    Everything registered looks the operator up in the registry at each call, so that a notebook cell can run again.
    """
    name = operator.definition.name
    if name not in _implementations and not native.serves(name):
        _register_schema(operator.definition)
    else:
        sharding.forget()
    if native.serves(name):
        native.replace(operator)
        return
    if name in _implementations:
        _implementations.pop(name)._destroy()
    library = Library(operator.definition.namespace, "FRAGMENT")
    _implementations[name] = library
    if operator.has_kernels:
        _register_stub(operator, library)
    else:
        _register_python(operator, library)


def torch_operator(definition: Definition, base: str | None = None) -> torch._ops.OpOverload:
    """The operator as torch holds it, or its twin of another ``base``."""
    found: torch._ops.OpOverload = getattr(getattr(torch.ops, definition.namespace), base or definition.base).default
    return found


def arguments(
    definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """One value an input and one an attribute, from what the dispatcher passes: it leaves out what equals a default."""
    inputs = [*args, *[None] * (len(definition.inputs) - len(args))]
    attributes = {item.name: kwargs.get(item.name, item.default) for item in definition.attributes}
    return inputs, {name: list(value) if isinstance(value, tuple) else value for name, value in attributes.items()}


def _register_schema(definition: Definition) -> None:
    library = _schemas.setdefault(definition.namespace, Library(definition.namespace, "FRAGMENT"))
    twin = f"{definition.base}_reference"
    count = len([*definition.parameters()])
    if count > MOST_PARAMETERS:
        raise DefinitionError(
            f"{definition.name}: it has {count} inputs and attributes, and PyTorch takes at most {MOST_PARAMETERS}."
            " Make some of them one: a list of tensors, or a list of numbers."
        )
    try:
        library.define(schema_text(definition), tags=(torch.Tag.pt2_compliant_tag,))
        library.define(schema_text(definition, twin), tags=(torch.Tag.pt2_compliant_tag,))
    except RuntimeError as error:
        reason = "which oneop did not define. Choose another name."
        if "multiple times" not in str(error) and "already" not in str(error):
            reason = f"or does not take its schema: {str(error).splitlines()[0]}"
        raise DefinitionError(f"{definition.name}: torch knows an operator of this name already, {reason}") from error
    compute = _reference_implementation(definition.name)
    followed = compute if definition.is_gradient else differentiable.checked(definition.name, compute)
    library.impl(twin, followed, "CompositeImplicitAutograd")
    library.impl(twin, compute, "FuncTorchBatched")
    library.impl(definition.base, vmap_implementation(definition.name), "FuncTorchBatched")
    for key in autocast.KEYS:
        library.impl(definition.base, autocast.autocast_implementation(definition.name, key), key)
    torch.library.register_fake(definition.name, _fake_implementation(definition.name), lib=library)
    scalars.register(definition, library, _fake_implementation(definition.name))
    sharding.watch(definition)


def _reference_implementation(name: str) -> Callable[..., Any]:
    def reference(*args: Any, **kwargs: Any) -> Any:
        operator = registry.operators()[name]
        inputs, attributes = arguments(operator.definition, args, kwargs)
        try:
            return run_reference(operator, inputs, attributes)
        except OneopError:
            raise
        except Exception as error:
            return sharding.gathered_reference(lambda local: run_reference(operator, local, attributes), inputs, error)

    return reference


def _fake_implementation(name: str) -> Callable[..., Any]:
    def fake(*args: Any, **kwargs: Any) -> Any:
        definition = registry.operators()[name].definition
        inputs, attributes = arguments(definition, args, kwargs)
        binding = check_inputs(definition, inputs, attributes)
        unknown: dict[str, Any] = {}
        values = tuple(
            _fake_output(definition, item, binding.output_shapes(item), inputs, unknown) for item in definition.outputs
        )
        return values[0] if len(values) == 1 else values

    return fake


def _fake_output(
    definition: Definition, item: Output, shapes: list[tuple[Any, ...]], inputs: list[Any], unknown: dict[str, Any]
) -> Any:
    if item.mirrors is not None:
        source = inputs[[own.name for own in definition.inputs].index(item.mirrors)]
        if isinstance(source, list | tuple):
            return [tensor.new_empty(tensor.shape) for tensor in source]
        return placeholder(definition, item, inputs) if source is None else source.new_empty(source.shape)
    (shape,) = shapes
    own = item.shape.dims
    sizes = [
        _fake_size(str(own[index - len(shape) + len(own)]), unknown) if size is None else size
        for index, size in enumerate(shape)
    ]
    return _first(inputs).new_empty(sizes, dtype=output_dtype(definition, item, inputs))


def _fake_size(dim: str, unknown: dict[str, Any]) -> Any:
    if dim not in unknown:
        unknown[dim] = torch.library.get_ctx().new_dynamic_size()
    return unknown[dim]


def _first(inputs: list[Any]) -> Tensor:
    for value in inputs:
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if isinstance(tensor, Tensor):
                return tensor
    raise AssertionError("an operator has at least one tensor in every call")


def _register_python(operator: "Operator", library: Library) -> None:
    name, base = operator.definition.name, operator.definition.base
    library.impl(base, _reference_implementation(name), "CompositeExplicitAutograd")
    library.impl(base, autograd.autograd_implementation(name), "Autograd", with_keyset=True)


def _register_stub(operator: "Operator", library: Library) -> None:
    """A native operator is built when it is called first; until then these stand in for what the runtime registers."""
    name, base = operator.definition.name, operator.definition.base

    def stub(*args: Any, **kwargs: Any) -> Any:
        native.prepare(registry.operators()[name])
        return torch_operator(operator.definition)(*args, **kwargs)

    library.impl(base, stub, "CompositeExplicitAutograd")
    library.impl(base, stub, "Autograd")


def remove_stub(name: str) -> None:
    """Makes room for what the runtime registers. The stub that is being called lives on until it returns."""
    if name in _implementations:
        _implementations.pop(name)._destroy()
