"""How a call may be split over the processes of a device mesh: what a definition says, and the rule for DTensor.

Names of dimensions alone do not say it: a softmax over ``n`` passes ``n`` through and mixes it, and ``k`` may be
contracted under a square root. So a definition says so in words, and a dimension without words is never split:

- ``independent=("n",)``: the operator of a slice along ``n`` is that slice of the result. ``*batch`` needs no word: to
  be independent along it is what one kernel for every rank, and vmap, rest on.
- ``summed={"k": ("bias",)}``: the operator is the sum of what it gives for each slice along ``k``, where ``bias``
  is itself split into summands; inputs that are not named go whole into each summand.

Words hold for every value of float and list attributes; flags, ints and strings are looked at call by call.

The words of an operator decide about its gradient operator too. With ``d`` independent, the gradient of an input
without ``d`` is the sum over the shares. With ``k`` summed, so is that of an input without ``k``, but for summands such
as ``bias``: their gradient is whole in every share, since ``out`` depends on them in one way, whatever the share.

What is private to DTensor stands in ``_register`` and ``forget``; all else is documented.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from oneop import registry
from oneop.definition.dims import Binary, Call, Name, Shape, names
from oneop.definition.record import Definition, Input, Output
from oneop.errors import CallError, DefinitionError
from oneop.importing import is_imported, when_imported

if TYPE_CHECKING:
    from oneop.operator import Operator

DTENSOR = "torch.distributed.tensor"

How = int | Literal["whole", "summand"]
"""What each process has of a tensor: a slice along a dimension, all of it, or one of several summands."""


@dataclass(frozen=True)
class Words:
    """What a definition says about its dimensions. ``summed`` maps a dimension to the inputs that are summands."""

    independent: tuple[str, ...] = ()
    summed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """One way to split: along a named dimension, or along one dimension of a leading group."""

    name: str
    kind: Literal["independent", "summed"]
    summands: tuple[str, ...] = ()
    position: int | None = None
    """Of a leading group: which of its dimensions."""

    @property
    def label(self) -> str:
        return self.name if self.position is None else f"*{self.name}[{self.position}]"

    @property
    def word(self) -> str:
        """The words as they stand in the definition."""
        if self.position is not None:
            return f"*{self.name}"
        if self.kind == "independent":
            return f"independent={(self.name,)!r}"
        return f"summed={ {self.name: self.summands}!r}"

    def along(self, shape: Shape, leading: int) -> int | None:
        """Which dimension of a tensor of this shape is cut, behind ``leading`` ones; None if it is not cut."""
        if self.position is not None:
            return self.position if shape.batch == self.name else None
        own = [index for index, dim in enumerate(shape.dims) if dim == Name(self.name)]
        return None if not own else own[0] + (leading if shape.batch is not None else 0)


@dataclass(frozen=True)
class Rule:
    """Which share of each input gives which share of each output. ``inputs`` has a value for absent ones too."""

    cut: Cut
    inputs: tuple[How, ...]
    outputs: tuple[How, ...]


def words_of(
    definition: Definition, independent: Sequence[str], summed: Mapping[str, str | Sequence[str]] | Sequence[str]
) -> Words:
    """The words of ``oneop.op``, checked. Raises DefinitionError where a dimension cannot be what they say."""
    if isinstance(independent, str):
        _refuse(definition, f"independent={independent!r} is a string", f"Write independent=({independent!r},)")
    if isinstance(summed, str):
        _refuse(definition, f"summed={summed!r} is a string", f"Write summed=({summed!r},)")
    pairs = summed.items() if isinstance(summed, Mapping) else [(name, ()) for name in summed]
    found = Words(
        tuple(independent), {name: (given,) if isinstance(given, str) else tuple(given) for name, given in pairs}
    )
    for name in found.independent:
        _check_dimension(definition, name, f"independent names `{name}`")
        if name in found.summed:
            _refuse(definition, f"`{name}` is both independent and summed", "Remove one of the two")
        for output in definition.outputs:
            if Name(name) not in output.shape.dims:
                _refuse(
                    definition,
                    f'independent names `{name}`, which output `{output.name}` ("{output.shape}") does not have',
                    f"Remove `{name}`, or say summed=... if the outputs of slices add up",
                )
    for name, summands in found.summed.items():
        _check_dimension(definition, name, f"summed names `{name}`")
        for output in definition.outputs:
            if Name(name) in output.shape.dims:
                _refuse(
                    definition,
                    f'summed names `{name}`, which output `{output.name}` ("{output.shape}") has',
                    f"Remove `{name}`, or say independent=... if slices of the result come from slices of the inputs",
                )
        _check_summands(definition, name, summands)
    return found


def _check_dimension(definition: Definition, name: str, where: str) -> None:
    inputs = [item for item in definition.inputs if Name(name) in item.shape.dims]
    if not inputs:
        bound = ", ".join(f"`{dim}`" for dim in definition.dims) or "none"
        _refuse(
            definition,
            f"{where}, which is no dimension of an input",
            f"The dimensions are {bound}; a leading group needs no word",
        )
    tensors: tuple[Input | Output, ...] = (*definition.inputs, *definition.outputs)
    for item in tensors:
        if item.shape.dims.count(Name(name)) > 1:
            _refuse(
                definition,
                f'{where}, which stands twice in `{item.name}` ("{item.shape}"), so that it cannot be sliced along it',
                f"Remove `{name}`",
            )
        if any(name in set(names(dim)) for dim in item.shape.dims if isinstance(dim, Binary | Call)):
            _refuse(
                definition,
                f'{where}, from which `{item.name}` ("{item.shape}") computes a size: slices would have others',
                f"Remove `{name}`",
            )
    if any(list(item.shape.unknown()) for item in definition.outputs):
        _refuse(
            definition,
            f"{where}, but an output has a size that only the kernel knows (`?`): slices would have others",
            f"Remove `{name}`",
        )


def _check_summands(definition: Definition, name: str, summands: tuple[str, ...]) -> None:
    for summand in summands:
        item = next((item for item in definition.inputs if item.name == summand), None)
        if item is None:
            known = ", ".join(item.name for item in definition.inputs)
            _refuse(definition, f"summed names `{summand}`, which is no input", f"The inputs are {known}")
        if Name(name) in item.shape.dims:
            _refuse(
                definition,
                f"summed says that `{summand}` is split into summands, but it has `{name}` and is cut along that",
                f"Remove `{summand}`",
            )
        if not item.element.may_be_floating:
            _refuse(
                definition, f"summed names `{summand}`, which is not floating: it has no summands", "Remove the word"
            )


def _refuse(definition: Definition, what: str, remedy: str) -> NoReturn:
    raise DefinitionError(f"{definition.name}: {what}. {remedy}.")


def forward_of(operator: "Operator") -> "Operator":
    """The operator whose words count: itself, or of a gradient operator the one that it belongs to."""
    if not operator.definition.is_gradient:
        return operator
    return registry.operators()[operator.definition.name.removesuffix("_grad")]


def cuts_of(operator: "Operator", leading: int) -> Iterator[Cut]:
    """How calls of an operator, or its gradient operator, may be split, if the leading group has so many dimensions."""
    forward = forward_of(operator)
    definition, words = forward.definition, forward.sharding
    unknown = any(list(item.shape.unknown()) for item in definition.outputs)
    if len(definition.batches) == 1 and all(item.shape.batch for item in definition.outputs) and not unknown:
        for position in range(leading):
            yield Cut(definition.batches[0], "independent", position=position)
    for name in words.independent:
        yield Cut(name, "independent")
    for name, summands in words.summed.items():
        yield Cut(name, "summed", summands)


def rule_of(operator: "Operator", cut: Cut, leading: int) -> Rule | None:
    """The shares for one way to split a call of an operator or a gradient operator. None: it cannot be split so."""
    definition = operator.definition
    if definition.is_gradient:
        return _gradient_rule(forward_of(operator).definition, definition, cut, leading)

    def share(item: Input) -> How:
        if item.name in cut.summands:
            return "summand"
        return _slice(cut.along(item.shape, leading), "whole")

    other: How = "summand" if cut.kind == "summed" else "whole"
    return Rule(
        cut,
        tuple(share(item) for item in definition.inputs),
        tuple(_slice(cut.along(item.shape, leading), other) for item in definition.outputs),
    )


def _gradient_rule(forward: Definition, definition: Definition, cut: Cut, leading: int) -> Rule | None:
    saved = {item.name for item in forward.outputs} & {item.name for item in definition.inputs}
    if cut.kind == "summed" and saved:  # a share's own summand of an output is not what is saved
        return None

    def share(item: Output) -> How:
        if item.mirrors in cut.summands:
            return "whole"
        return _slice(cut.along(item.shape, leading), "summand")

    return Rule(
        cut,
        tuple(_slice(cut.along(item.shape, leading), "whole") for item in definition.inputs),
        tuple(share(item) for item in definition.outputs),
    )


def _slice(along: int | None, other: How) -> How:
    return other if along is None else along


def leading_of(definition: Definition, shapes: Sequence[Sequence[Sequence[int]]]) -> int:
    """How many dimensions the leading group has, from the shapes of each input's tensors."""
    for item, its in zip(definition.inputs, shapes, strict=True):
        if item.shape.batch is not None and its:
            return len(its[0]) - len(item.shape.dims)
    return 0


# ---- DTensor ---------------------------------------------------------------------------------------------------------


def watch(definition: Definition) -> None:
    """Gives an operator its rule for DTensor: now if DTensor is imported, else when it is. Imports nothing."""
    when_imported(DTENSOR, functools.partial(_register, definition))


def forget() -> None:
    """Makes DTensor ask for rules again: an operator was defined once more, perhaps with other words."""
    if is_imported(DTENSOR):
        from torch.distributed.tensor import debug

        debug._clear_sharding_prop_cache()


def _register(definition: Definition) -> None:
    """Runs while DTensor's package is being imported, perhaps by torch.compile: it imports no more than that."""
    import torch
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo

    overload = getattr(getattr(torch.ops, definition.namespace), definition.base).default
    dispatcher = DTensor._op_dispatcher
    if not _has_plain_outputs(definition):
        dispatcher._custom_op_handlers[overload] = _gathered_call
        return
    # DTensor remembers a decision for calls that look the same: same shapes, placements, and these attributes, which
    # may change what a call computes, and so whether it may be split.
    keys = [str(item.name) for item in overload._schema.arguments if str(item.type) in _REMEMBERED]
    remembered = RuntimeSchemaInfo(static_kwargkey=keys or None, needs_pytree=True)
    propagator = dispatcher.sharding_propagator

    def strategy(call: Any) -> Any:
        from torch.distributed.tensor.experimental import register_sharding

        register_sharding(overload)(_placements_for(definition.name))  # in place of this function
        propagator.op_to_schema_info[overload] = remembered
        return propagator.op_strategy_funcs[overload](call)

    propagator.register_op_strategy(overload, strategy, remembered)


def _has_plain_outputs(definition: Definition) -> bool:
    """Whether rules can describe the outputs: not lists of gradients, nor sizes that are known afterwards."""
    lists = any(item.mirrors and definition.input(item.mirrors).arity == "variadic" for item in definition.outputs)
    return not lists and not any(list(item.shape.unknown()) for item in definition.outputs)


_REMEMBERED = ("int", "bool", "str", "Optional[int]", "Optional[bool]", "Optional[str]")


def _placements_for(name: str) -> Callable[..., list[tuple[list[Any], list[Any]]]]:
    """What DTensor asks for each new kind of call: which placements of the outputs and inputs go together."""

    def placements(*args: Any, **kwargs: Any) -> list[tuple[list[Any], list[Any]]]:
        from oneop.targets.pytorch.registration import arguments
        from oneop.targets.pytorch.sharding_check import is_trusted

        operator = registry.operators()[name]
        definition = operator.definition
        inputs, attributes = arguments(definition, args, kwargs)
        tensors = [_listed(value) for value in inputs]
        counts = [len(its) for its in tensors]
        found = [_placed(definition, _whole_rule(definition), counts)]
        shapes = [[tuple(spec.shape) for spec in its] for its in tensors]
        leading = leading_of(definition, shapes)
        for cut in cuts_of(operator, leading):
            rule = rule_of(operator, cut, leading)
            if rule is not None and is_trusted(operator, cut, tensors, attributes):
                found.append(_placed(definition, rule, counts))
        return found

    return placements


def _whole_rule(definition: Definition) -> Rule:
    """No shares: every process computes everything."""
    whole: How = "whole"
    inputs, outputs = (whole,) * len(definition.inputs), (whole,) * len(definition.outputs)
    return Rule(Cut("", "independent"), inputs, outputs)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _gathered_call(op_call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call whose every input is gathered in every process, which then all compute the same."""
    import torch
    from torch.distributed.tensor import DTensor, Replicate
    from torch.utils._pytree import tree_map

    (mesh, *others) = {tensor.device_mesh for tensor in _tensors(args) if isinstance(tensor, DTensor)}
    if others or not all(isinstance(tensor, DTensor) for tensor in _tensors(args)):
        raise CallError(
            f"{op_call.name()}: inputs are DTensors of different meshes, or only some are DTensors. Make all of them"
            " DTensors of one mesh (torch.distributed.tensor.distribute_tensor)."
        )
    whole = [Replicate()] * mesh.ndim

    def local(value: Any) -> Any:
        return value.redistribute(placements=whole).to_local() if isinstance(value, DTensor) else value

    def distributed(value: Any) -> Any:
        return DTensor.from_local(value, mesh, whole, run_check=False)

    with torch.no_grad():  # autograd has been here: this is what lies below it
        return tree_map(distributed, op_call(*tree_map(local, args), **kwargs))


def gathered_reference(call: Callable[..., Any], inputs: Sequence[Any], error: Exception) -> Any:
    """Runs a reference, which failed with ``error``, on gathered inputs if they are DTensors, else raises the error.

    A reference that makes tensors of its own, or calls what DTensor has no rule for, cannot run on DTensors. Every
    process then computes the same, forward and backward, and so every gradient is whole.
    """
    if not is_imported(DTENSOR):
        raise error
    from torch.distributed.tensor import DTensor, Replicate
    from torch.utils._pytree import tree_map

    tensors = [tensor for tensor in _tensors(inputs) if tensor is not None]
    meshes = {tensor.device_mesh for tensor in tensors if isinstance(tensor, DTensor)}
    if len(meshes) != 1 or not all(isinstance(tensor, DTensor) for tensor in tensors):
        raise error
    (mesh,) = meshes
    whole = [Replicate()] * mesh.ndim

    def local(value: Any) -> Any:
        if not isinstance(value, DTensor):
            return value
        return value.redistribute(placements=whole).to_local(grad_placements=whole)

    def distributed(value: Any) -> Any:
        return DTensor.from_local(value, mesh, whole, run_check=False)

    return tree_map(distributed, call(tree_map(local, list(inputs))))


def _tensors(args: Sequence[Any]) -> list[Any]:
    return [value for arg in args for value in _listed(arg)]


def _placed(definition: Definition, rule: Rule, counts: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """A rule in DTensor's terms: a placement for each output, and for each tensor of the inputs."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    def placement(how: How) -> Any:
        return Replicate() if how == "whole" else Partial("sum") if how == "summand" else Shard(how)

    absent = {item.name for item, count in zip(definition.inputs, counts, strict=True) if count == 0}
    outputs = [
        Replicate() if item.mirrors in absent else placement(how)
        for item, how in zip(definition.outputs, rule.outputs, strict=True)
    ]
    inputs = [placement(how) for how, count in zip(rule.inputs, counts, strict=True) for _ in range(count)]
    return outputs, inputs
