"""Takes a ``torch.autograd.Function`` over as an operator: forward becomes the reference, backward the gradient."""

import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NoReturn

import torch
from torch import Tensor

from oneop.definition.gradient import differentiable_outputs, gradient_name
from oneop.definition.record import NEEDS, Definition
from oneop.definition.signature import definition_of, output_type_of
from oneop.errors import CallError, DefinitionError
from oneop.operator import Operator

FunctionClass = type[torch.autograd.Function]


def from_function(function: FunctionClass, name: str, signature: Callable[..., Any]) -> Operator:
    """Makes a ``torch.autograd.Function`` the operator ``name``, with the interface that ``signature`` describes.

    Args:
        function: the class, in either style: ``forward(ctx, ...)``, or ``forward(...)`` with ``setup_context``.
        name: ``"namespace::base"``.
        signature: an annotated function without a body, as ``oneop.op`` decorates it: tensors positional, attributes
            keyword-only. Its parameters have the names of forward's, which may come in another order.

    What forward saves is computed again in backward; saved inputs and outputs are passed on. Double backward
    differentiates the body of ``backward``. Forward mode differentiates the body of ``forward``.

    Raises DefinitionError where the parameters differ, or where the class does what an operator cannot: change an input
    in place, or keep state outside ``ctx``.

    >>> import oneop, torch
    >>> from jaxtyping import Float
    >>> from torch import Tensor
    >>> class Scale(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x, alpha):
    ...         ctx.alpha = alpha
    ...         return alpha * x
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return ctx.alpha * grad, None
    >>> def scale(x: Float[Tensor, "n"], *, alpha: float = 1.0) -> Float[Tensor, "n"]: ...
    >>> operator = oneop.from_function(Scale, "docs::scale_function", scale)
    >>> operator(torch.ones(2), alpha=3.0)
    tensor([3., 3.])
    """
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        raise DefinitionError(f"{name}: {function!r} is not a subclass of torch.autograd.Function. Pass the class.")
    _refuse_what_no_operator_does(function, name)
    definition = definition_of(signature, name, onnx_name=_symbolic_name(function, name))
    taken = _Taken(function, definition, output_type_of(signature))
    operator = Operator(
        definition,
        taken.forward,
        output_type=output_type_of(signature),
        defined_in=inspect.getsourcefile(function.forward) or name,
        parameters=[*definition.parameters()],
    )
    if differentiable_outputs(definition) and any(item.element.may_be_floating for item in definition.inputs):
        operator.gradient(taken.gradient())
    return operator


def _has_setup_context(function: FunctionClass) -> bool:
    return function.setup_context is not torch.autograd.Function.setup_context


def _parameters(function: FunctionClass) -> list[str]:
    """The names that forward gives its arguments, without ctx."""
    names = list(inspect.signature(function.forward).parameters)
    return names if _has_setup_context(function) else names[1:]


class _Taken:
    """The two halves of a Function as plain functions of inputs and attributes."""

    def __init__(self, function: FunctionClass, definition: Definition, output_type: type | None) -> None:
        self.function = function
        self.definition = definition
        self.order = _parameters(function)
        given = [*definition.parameters()]
        if sorted(self.order) != sorted(given):
            raise DefinitionError(
                f"{definition.name}: {function.__name__}.forward takes ({', '.join(self.order)}), and the signature "
                f"({', '.join(given)}). Give them the same names."
            )

    def forward(self, *inputs: Any, **attributes: Any) -> Any:
        return self._run(_Context(self, ()), inputs, attributes)

    def gradient(self) -> Callable[..., Any]:
        """backward as a gradient function. It takes every output, so that outputs that forward saved stay connected."""
        definition = self.definition
        gradients = [gradient_name(definition, item) for item in differentiable_outputs(definition)]
        inputs = [item.name for item in definition.inputs]
        outputs = [item.name for item in definition.outputs]
        keywords = [item.name for item in definition.attributes]

        def gradient(*values: Any, needs: int, **attributes: Any) -> tuple[Any, ...]:
            incoming = dict(zip(gradients, values[: len(gradients)], strict=True))
            own = values[len(gradients) : len(gradients) + len(inputs)]
            return self._backward(incoming, own, values[len(gradients) + len(inputs) :], attributes, needs)

        kinds = inspect.Parameter
        positional = [kinds(name, kinds.POSITIONAL_OR_KEYWORD) for name in (*gradients, *inputs, *outputs)]
        named = [kinds(name, kinds.KEYWORD_ONLY) for name in (*keywords, NEEDS)]
        gradient.__signature__ = inspect.Signature([*positional, *named])  # type: ignore[attr-defined]
        gradient.__doc__ = self.function.backward.__doc__
        return gradient

    def _arguments(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
        values = {
            **{item.name: value for item, value in zip(self.definition.inputs, inputs, strict=True)},
            **attributes,
        }
        return [values[name] for name in self.order]

    def _run(self, context: "_Context", inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        arguments = self._arguments(inputs, attributes)
        if not _has_setup_context(self.function):
            return self.function.forward(context, *arguments)
        returned = self.function.forward(*arguments)
        self.function.setup_context(context, tuple(arguments), returned)
        return returned

    def _backward(
        self,
        incoming: Mapping[str, Tensor],
        inputs: Sequence[Any],
        outputs: Sequence[Tensor],
        attributes: Mapping[str, Any],
        needs: int,
    ) -> tuple[Any, ...]:
        needed = {item.name: bool(needs >> index & 1) for index, item in enumerate(self.definition.inputs)}
        context = _Context(self, tuple(needed.get(name, False) for name in self.order))
        computed = self._run(context, inputs, attributes)
        context.replace(computed if isinstance(computed, tuple) else (computed,), outputs)
        gradients = [incoming.get(gradient_name(self.definition, item), None) for item in self.definition.outputs]
        returned = self.function.backward(context, *gradients)
        values = returned if isinstance(returned, tuple) else (returned,)
        extra = values[len(self.order) :]
        if len(values) < len(self.order) or any(value is not None for value in extra):
            raise CallError(
                f"{self.definition.name}_grad: {self.function.__name__}.backward returned {len(values)} values; forward"
                f" takes {len(self.order)} ({', '.join(self.order)}). Return one for each, None where there is no"
                " gradient."
            )
        found = dict(zip(self.order, values, strict=False))
        return tuple(found[item.name] for item in self.definition.inputs)


class _Context:
    """What a Function calls ``ctx``, for one run of forward and backward."""

    def __init__(self, taken: _Taken, needs_input_grad: tuple[bool, ...]) -> None:
        self._taken = taken
        self.needs_input_grad = needs_input_grad or tuple(False for _ in taken.order)
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """For jvp, which an operator derives from forward."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """An output of an integer type is that anyway."""
        floating = [tensor for tensor in tensors if tensor.dtype.is_floating_point]
        if floating:
            _refuse(
                self._taken.definition.name,
                f"{self._taken.function.__name__} marks a floating output as not differentiable",
                "Return it detached from a function of its own",
                CallError,
            )

    def set_materialize_grads(self, value: bool) -> None:
        """A gradient that nobody computed arrives as zeros either way."""

    def mark_dirty(self, *tensors: Tensor) -> NoReturn:
        _refuse_in_place(self._taken.definition.name, self._taken.function, CallError)

    def replace(self, computed: Sequence[Any], given: Sequence[Tensor]) -> None:
        """Puts the outputs that the first forward gave in the place of those that this one computed again."""
        same = {id(mine): theirs for mine, theirs in zip(computed, given, strict=True)}
        self.saved_tensors = tuple(same.get(id(tensor), tensor) for tensor in self.saved_tensors)
        for name, value in list(vars(self).items()):
            if isinstance(value, Tensor) and id(value) in same:
                setattr(self, name, same[id(value)])


def _refuse(name: str, what: str, remedy: str, kind: type[Exception] = DefinitionError) -> NoReturn:
    raise kind(f"{name}: {what}. {remedy}.")


def _refuse_in_place(name: str, function: FunctionClass, kind: type[Exception]) -> NoReturn:
    _refuse(
        name,
        f"{function.__name__} changes an input in place (mark_dirty), which an operator cannot",
        "Return a new tensor",
        kind,
    )


def _refuse_what_no_operator_does(function: FunctionClass, name: str) -> None:
    for method in (function.forward, function.backward, function.setup_context):
        code = getattr(inspect.unwrap(method), "__code__", None)
        if code is None:
            continue
        for instruction in _instructions(code):
            if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR") and instruction.argval == "mark_dirty":
                _refuse_in_place(name, function, DefinitionError)
            if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
                instruction.opname == "STORE_DEREF" and instruction.argval in code.co_freevars
            ):
                _refuse(
                    name,
                    f"{function.__name__}.{method.__name__} keeps state outside ctx: it assigns `{instruction.argval}`",
                    "Keep what backward needs on ctx, and make the rest an input or an output",
                )


def _instructions(code: CodeType) -> list[dis.Instruction]:
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*dis.get_instructions(code), *(item for inner in nested for item in _instructions(inner))]


class _Graph:
    """What a ``symbolic`` calls ``g``: remembers the operator that it writes."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> "_Graph":
        self.written.append(kind)
        return self

    def __iter__(self) -> Any:
        return iter((self, self))

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self


def _symbolic_name(function: FunctionClass, name: str) -> str | None:
    """The ONNX operator type that the Function's ``symbolic`` writes, if it has one."""
    symbolic = getattr(function, "symbolic", None)
    if symbolic is None:
        return None
    graph = _Graph()
    try:
        symbolic(graph, *[graph] * (len(inspect.signature(symbolic).parameters) - 1))
    except Exception as error:
        raise DefinitionError(
            f"{name}: {function.__name__}.symbolic cannot be read: {type(error).__name__}: {error}. Remove it; oneop"
            " writes the ONNX node from the signature."
        ) from error
    domain, separator, kind = (graph.written[-1] if graph.written else "").partition("::")
    if not separator:
        raise DefinitionError(
            f"{name}: {function.__name__}.symbolic writes standard ONNX operators. Remove it; oneop writes the ONNX"
            " node from the signature, and forward as its fallback."
        )
    if domain != name.partition("::")[0]:
        raise DefinitionError(
            f"{name}: {function.__name__}.symbolic writes `{domain}::{kind}`. An operator's namespace is its ONNX"
            " domain: name "
            f'it "{domain}::{name.partition("::")[2]}", or remove `symbolic`.'
        )
    return kind
