"""Float attributes that change from call to call under torch.compile: the overload ``NS::BASE.scalars``.

torch specialises a compiled graph for each value of a float argument of an operator, and compiles again for the next.
So a float that is no constant of the graph goes in as a tensor: ``scalars`` holds the values, and bit ``i`` of
``which`` says that attribute ``i`` has one there. They are read when the call runs.

Its gradient is opaque too: the gradient operator's overload, or ``oneop::derived``, which differentiates the reference
when it runs. So a reference may do with a float whatever it likes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C import DispatchKeySet
from torch.autograd.forward_ad import _set_fwd_grad_enabled, unpack_dual
from torch.autograd.function import _SingleLevelFunction
from torch.library import Library

from oneop import registry
from oneop.definition.record import Definition
from oneop.errors import CallError
from oneop.targets.pytorch import autocast, autograd
from oneop.targets.pytorch.reference import alias
from oneop.targets.pytorch.schema import schema_text

if TYPE_CHECKING:
    from oneop.operator import Operator

_ARGUMENTS = ("Tensor scalars", "int which")
_PLAIN = (Tensor, torch.nn.Parameter)
_ABSENT = -2


def float_attributes(definition: Definition) -> tuple[tuple[int, str], ...]:
    """The bit in ``which`` and the name of each attribute that this is about."""
    return tuple(
        (1 << index, item.name) for index, item in enumerate(definition.attributes) if item.kind.name == "float"
    )


def call(operator: "Operator", args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls an operator in a function that torch.compile traces.

    With ``inline=True`` that shows the reference, except where a float changes: it would be specialised there too.
    """
    changing = [(bit, name) for bit, name in operator.float_attributes if _changes(kwargs.get(name))]
    if not changing or _in_transform() or not all(_is_plain(value) for value in [*args, *kwargs.values()]):
        return (operator.torch_reference if operator.inline else operator.torch_op)(*args, **kwargs)
    # A product with a tensor is what torch.compile keeps symbolic; scalar_tensor would be specialised.
    one = torch.ones(1, dtype=torch.float64)
    values = torch.cat([one * kwargs[name] for _, name in changing])
    which = sum(bit for bit, _ in changing)
    rest = {**kwargs, **{name: 0.0 for _, name in changing}}
    return operator.torch_op.overloadpacket.scalars(*args, scalars=values, which=which, **rest)


def _changes(value: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import has_static_value  # costs seconds; whoever compiles has it

    return isinstance(value, float | int) and not has_static_value(value)


def _in_transform() -> bool:
    """Whether a transform of torch.func is at work: those have rules for the operator itself."""
    return bool(torch._C._functorch.maybe_current_level())


# What torch._dynamo.assume_constant_result sets, without importing Dynamo. It guards torch.func's levels by itself.
_in_transform._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _is_plain(value: Any) -> bool:
    """Subclasses of tensors, such as DTensor, have rules for the operator itself."""
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return not isinstance(value, Tensor) or type(value) in _PLAIN


def register(definition: Definition, library: Library, fake: Callable[..., Any]) -> None:
    """Registers the overload of an operator; ``fake`` works out its shapes as it does for the operator."""
    if not float_attributes(definition):
        return
    name, base = definition.name, f"{definition.base}.scalars"
    library.define(schema_text(definition, base, more=_ARGUMENTS), tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(base, _implementation(name), "CompositeExplicitAutograd")
    library.impl(base, _autograd_implementation(name), "Autograd", with_keyset=True)
    for key in autocast.KEYS:
        library.impl(base, autocast.autocast_implementation(name, key, "scalars"), key)
    torch.library.register_fake(f"{definition.namespace}::{base}", fake, lib=library)


def _read(definition: Definition, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes, with the values of ``scalars`` among them."""
    attributes = {name: value for name, value in kwargs.items() if name not in ("scalars", "which")}
    values = iter(kwargs["scalars"].tolist())
    return attributes | {name: next(values) for bit, name in float_attributes(definition) if kwargs["which"] & bit}


def _implementation(name: str) -> Callable[..., Any]:
    def scalars(*args: Any, **kwargs: Any) -> Any:
        operator = registry.operators()[name]
        return operator.torch_op(*args, **_read(operator.definition, kwargs))

    return scalars


def _autograd_implementation(name: str) -> Callable[..., Any]:
    def scalars(keys: DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        operator = registry.operators()[name]
        overload = operator.torch_op.overloadpacket.scalars
        tensors = autograd.flat(args)
        if any(unpack_dual(tensor).tangent is not None for tensor in tensors):
            _refuse(operator, "forward mode")
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
            return autograd.below(overload, keys, args, kwargs)
        function = _DerivedGradient if operator.gradient_operator is None else autograd.WrittenGradient
        return autograd.apply(function, autograd.Call(operator, overload, keys, args, kwargs))

    return scalars


def _refuse(operator: "Operator", what: str) -> None:
    raise CallError(
        f"{operator.definition.name}: torch.compile passes a float attribute that changes from call to call as a"
        f" tensor, and {what} does not support that. Set torch._dynamo.config.specialize_float = True, which compiles"
        " once for each value."
    )


class _DerivedGradient(_SingleLevelFunction):
    """Forward is the overload, backward is ``oneop::derived``."""

    @staticmethod
    def forward(ctx: Any, call: autograd.Call, *tensors: Tensor) -> Any:
        inputs, _ = call.inputs(tensors)
        with torch.enable_grad(), _set_fwd_grad_enabled(True):  # as in WrittenGradient
            result = autograd.below(call.overload, call.keys, inputs, call.kwargs)
        ctx.call = call
        ctx.save_for_backward(*tensors)
        outputs = result if isinstance(result, tuple) else (result,)
        ctx.mark_non_differentiable(*(value for value in outputs if not value.dtype.is_floating_point))
        ctx.set_materialize_grads(False)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        call: autograd.Call = ctx.call
        tensors = ctx.saved_tensors
        wanted = autograd.asked_for(ctx)
        given = [index for index, value in enumerate(gradients) if value is not None]
        if not given or not any(wanted):
            return (None,) * (1 + len(tensors))
        rest = {name: value for name, value in call.kwargs.items() if name not in ("scalars", "which")}
        found = iter(
            torch.ops.oneop.derived.default(
                call.operator.definition.name,
                [gradients[index] for index in given],
                given,
                list(tensors),
                [_ABSENT if count is None else count for count in call.counts],
                json.dumps(rest),
                call.kwargs["scalars"],
                call.kwargs["which"],
                wanted,
            )
        )
        return (None, *(next(found) if one else None for one in wanted))


# ---- oneop::derived --------------------------------------------------------------------------------------------------

_LIBRARY = Library("oneop", "FRAGMENT")
_LIBRARY.define(
    "derived(str name, Tensor[] gradients, int[] given, Tensor[] inputs, int[] counts, str attributes, Tensor scalars,"
    " int which, bool[] wanted) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _derived(
    name: str,
    gradients: list[Tensor],
    given: list[int],
    inputs: list[Tensor],
    counts: list[int],
    attributes: str,
    scalars: Tensor,
    which: int,
    wanted: list[bool],
) -> list[Tensor]:
    """The gradients of the wanted inputs, by the reference: ``gradients`` are those of the outputs ``given``."""
    operator = registry.operators()[name]
    kwargs = _read(operator.definition, {**json.loads(attributes), "scalars": scalars, "which": which})
    leaves = [tensor.detach().requires_grad_(one) for tensor, one in zip(inputs, wanted, strict=True)]
    with torch.enable_grad():
        result = operator.torch_reference(*_grouped(leaves, counts), **kwargs)
    outputs = result if isinstance(result, tuple) else (result,)
    pairs = [(outputs[index], value) for index, value in zip(given, gradients, strict=True)]
    pairs = [(output, value) for output, value in pairs if output.requires_grad]
    if not pairs:
        raise CallError(
            f"{name}: its reference is not differentiable: no output that got a gradient depends on an input in a way"
            " autograd can follow. Give the operator a gradient, or call it on detached inputs."
        )
    sources = [leaf for leaf in leaves if leaf.requires_grad]
    found: Sequence[Tensor | None] = torch.autograd.grad(
        [output for output, _ in pairs], sources, [value for _, value in pairs], allow_unused=True
    )
    results: list[Tensor] = []
    for source, value in zip(sources, found, strict=True):
        if value is None:
            results.append(torch.zeros_like(source, memory_format=torch.contiguous_format))
        else:  # an operator's outputs share no memory with its inputs or each other, and lie as the fake ones do
            laid_out = value.contiguous()
            shared = any(alias(laid_out, other) for other in [*gradients, *inputs, *results])
            results.append(laid_out.clone() if shared else laid_out)
    return results


def _grouped(tensors: Sequence[Tensor], counts: Sequence[int]) -> list[Any]:
    rest = iter(tensors)
    return [
        None if count == _ABSENT else next(rest) if count < 0 else [next(rest) for _ in range(count)]
        for count in counts
    ]


def _derived_at_autograd(keys: DispatchKeySet, name: str, *args: Any) -> Any:
    tensors = [tensor for value in args for tensor in (value if isinstance(value, list | tuple) else [value])]
    if torch.is_grad_enabled() and any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in tensors):
        _refuse(registry.operators()[name], "a second derivative")
    # What is below differentiates, so the Autograd key stays on.
    return torch.ops.oneop.derived.default.redispatch(keys & torch._C._after_autograd_keyset, name, *args)


def _derived_fake(name: str, gradients: list[Tensor], given: list[int], inputs: list[Tensor], *rest: Any) -> Any:
    return [tensor.new_empty(tensor.shape) for tensor, one in zip(inputs, rest[-1], strict=True) if one]


_LIBRARY.impl("derived", _derived, "CompositeExplicitAutograd")
_LIBRARY.impl("derived", _derived_at_autograd, "Autograd", with_keyset=True)
torch.library.register_fake("oneop::derived", _derived_fake, lib=_LIBRARY)
