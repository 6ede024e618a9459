"""Derives the definition of a gradient operator from its operator's definition and the function that computes it."""

import inspect
from collections.abc import Callable
from typing import Any

from oneop.definition import attributes
from oneop.definition.checks import check
from oneop.definition.dims import Anything, Dim, Name, Shape, Unknown
from oneop.definition.record import NEEDS, Attribute, Definition, Input, Output
from oneop.errors import DefinitionError


def gradient_definition(definition: Definition, function: Callable[..., Any]) -> Definition:
    """The definition of ``<name>_grad``, whose reference is ``function``.

    Its inputs are one gradient for each floating output (``grad``, or ``grad_<output>`` where there are several
    outputs), the operator's inputs, and the operator's outputs that the function names. Raises DefinitionError where
    the function's parameters are not these.
    """
    named = _positional(function)
    kept = tuple(output for output in definition.outputs if output.name in named)
    inputs = (
        *(
            Input(gradient_name(definition, output), "required", output.element, _known(output.shape))
            for output in differentiable_outputs(definition)
        ),
        *(Input(item.name, item.arity, item.element, _named(item)) for item in definition.inputs),
        *(Input(output.name, "required", output.element, _known(output.shape)) for output in kept),
    )
    _check_parameters(definition, function, [item.name for item in inputs])
    gradient = Definition(
        name=f"{definition.name}_grad",
        inputs=inputs,
        attributes=(*definition.attributes, Attribute(NEEDS, attributes.BY_NAME["int"], -1)),
        outputs=tuple(
            Output(f"grad_{item.name}", item.element, _named(item), mirrors=item.name)
            for item in definition.inputs
            if item.element.may_be_floating
        ),
        onnx_name=f"{definition.onnx_name}Grad",
        layout=definition.layout,
        differentiates=tuple(item.name for item in definition.inputs),
        doc=inspect.getdoc(function) or "",
    )
    check(gradient)
    return gradient


def differentiable_outputs(definition: Definition) -> tuple[Output, ...]:
    """The outputs that a gradient may come in for."""
    return tuple(output for output in definition.outputs if output.element.may_be_floating)


def gradient_name(definition: Definition, output: Output) -> str:
    """What the gradient function calls the gradient of an output."""
    return "grad" if len(definition.outputs) == 1 else f"grad_{output.name}"


def _positional(function: Callable[..., Any]) -> list[str]:
    return [name for name, item in inspect.signature(function).parameters.items() if item.kind != item.KEYWORD_ONLY]


def _check_parameters(definition: Definition, function: Callable[..., Any], wanted: list[str]) -> None:
    if not differentiable_outputs(definition):
        raise DefinitionError(
            f"{definition.name}: no output is floating, so there is no gradient to write. Remove `.gradient`."
        )
    if not any(item.element.may_be_floating for item in definition.inputs):
        raise DefinitionError(
            f"{definition.name}: no input is floating, so there is no gradient to write. Remove `.gradient`."
        )
    given = _positional(function)
    keywords = [name for name, item in inspect.signature(function).parameters.items() if item.kind == item.KEYWORD_ONLY]
    known = [item.name for item in definition.attributes] + [NEEDS]
    unknown = [name for name in keywords if name not in known]
    variable = any(
        item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD) for item in inspect.signature(function).parameters.values()
    )
    if given != wanted or unknown or variable:
        outputs = ", ".join(f"`{output.name}`" for output in definition.outputs)
        names = ", ".join(item.name for item in definition.attributes)
        raise DefinitionError(
            f"{definition.name}: the gradient is `{_signature(function)}`. Write"
            f" `({', '.join(wanted)}{f', *, {names}' if names else ''})`: the gradients, the inputs, then those of the"
            f" outputs {outputs} that it uses; attributes (and `{NEEDS}`) as keywords."
        )


def _signature(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__name__', 'function')}{inspect.signature(function)}"


def _named(item: Input) -> Shape:
    """An input's shape with a name for each anonymous dimension, so that the gradient's shape can be stated."""
    dims: list[Dim] = [
        Name(f"{item.name}_size{position}") if isinstance(dim, Anything) and item.arity != "variadic" else dim
        for position, dim in enumerate(item.shape.dims)
    ]
    return Shape(tuple(dims), item.shape.batch)


def _known(shape: Shape) -> Shape:
    """An output's shape once the output is there."""
    return Shape(tuple(Name(dim.name) if isinstance(dim, Unknown) else dim for dim in shape.dims), shape.batch)
