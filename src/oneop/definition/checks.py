"""What must hold of a definition as a whole, checked when it is made, so that no target has to."""

import difflib
from collections.abc import Iterable

from oneop.definition import words
from oneop.definition.dims import Anything, Binary, Call, DimError, Name, Unknown, compute_constants, names
from oneop.definition.record import NEEDS, Definition
from oneop.errors import DefinitionError

_COMMON = {"Int": "Int64", "Integer": "Int64", "UInt": "UInt8"}
"""The fixed dtype that most people mean by a class."""


def check(definition: Definition) -> None:
    """Raises DefinitionError where names clash or cannot be used, or where a shape or dtype is bound by nothing."""
    _check_inputs(definition)
    _check_names(definition)
    _check_input_dims(definition)
    _check_output_dims(definition)
    _check_constants(definition)
    _check_output_dtypes(definition)


def _fail(definition: Definition, text: str) -> None:
    raise DefinitionError(f"{definition.name}: {text}")


def _check_inputs(definition: Definition) -> None:
    if not definition.inputs:
        _fail(definition, "there is no input. An operator takes at least one tensor, as a positional parameter.")
    for item in definition.inputs[:-1]:
        if item.arity == "variadic" and not definition.is_gradient:
            _fail(definition, f"parameter `{item.name}` is variadic, but others follow. Put the list of tensors last.")
    if all(item.arity == "optional" for item in definition.inputs):
        _fail(definition, "every input is optional. At least one is always there.")
    if not definition.onnx_name.isidentifier() or not definition.onnx_name.isascii():
        _fail(definition, f"onnx_name={definition.onnx_name!r} is not a name. Write it like `ScaledLinear`.")


def _check_names(definition: Definition) -> None:
    dims = dict.fromkeys(definition.dims, "dimension")
    batches = dict.fromkeys(definition.batches, "leading group")
    taken: dict[str, str] = {}
    groups: list[tuple[str, Iterable[str]]] = [
        ("input", [item.name for item in definition.inputs]),
        ("attribute", [item.name for item in definition.attributes]),
        ("output", [item.name for item in definition.outputs]),
        ("dimension", dims),
        ("leading group", batches),
    ]
    for role, found in groups:
        for name in found:
            _check_word(definition, role, name)
            if name in taken:
                _clash(definition, name, taken[name], role)
            taken[name] = role


def _check_word(definition: Definition, role: str, name: str) -> None:
    usable = name.isascii() and name.isidentifier() and not name.startswith("_") and "__" not in name
    reserved = name in words.C_WORDS or name in words.RESERVED_NAMES or name.startswith("oneop")
    gradient_word = not definition.is_gradient and (name == NEEDS or name.startswith("needs_"))
    if usable and not reserved and not gradient_word:
        return
    reason = (
        "it is used by oneop"
        if gradient_word or name.startswith("oneop")
        else "C, C++ or Python cannot use it as a name"
    )
    _fail(definition, f"the {role} `{name}` needs another name: {reason}. For example `{_another(name)}`.")


def _another(name: str) -> str:
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name).strip("_")
    while "__" in plain:
        plain = plain.replace("__", "_")
    return f"my_{plain or 'name'}"


def _clash(definition: Definition, name: str, first: str, second: str) -> None:
    if {first, second} == {"attribute", "dimension"}:
        _fail(
            definition,
            f"the dimension `{name}` shadows the attribute `{name}`. Rename one of them; expressions such as `2*{name}`"
            " may use an attribute.",
        )
    _fail(
        definition,
        f"`{name}` names both the {first} and the {second}. In a kernel both are fields of one struct: rename one of"
        " them.",
    )


def _check_input_dims(definition: Definition) -> None:
    bound = {name for item in definition.inputs for name in item.shape.binds()} | _int_attributes(definition)
    for item in definition.inputs:
        for dim in item.shape.dims:
            if isinstance(dim, Unknown):
                _fail(
                    definition,
                    f"input `{item.name}`: `{dim}` is for outputs. Write `{dim.name}`: an input's size is always"
                    " known.",
                )
            if isinstance(dim, Binary | Call):
                for name in names(dim):
                    _check_known(definition, f"input `{item.name}`: `{dim}`", name, bound)


def _int_attributes(definition: Definition) -> set[str]:
    return {item.name for item in definition.attributes if item.kind.name == "int" and not item.optional}


def _check_known(definition: Definition, where: str, name: str, bound: set[str]) -> None:
    if name in bound:
        return
    attribute = next((item for item in definition.attributes if item.name == name), None)
    if attribute is not None:
        kind = attribute.kind.annotation + (" | None" if attribute.optional else "")
        _fail(
            definition,
            f"{where} names the attribute `{name}`, which is {kind}. Only int attributes can stand in dimensions.",
        )
    close = difflib.get_close_matches(name, sorted(bound), 1)
    hint = f"Did you mean `{close[0]}`?" if close else f"Bound are: {', '.join(sorted(bound)) or 'none'}."
    _fail(
        definition,
        f"{where} names `{name}`, which no input binds. {hint} For a size that only the kernel knows, write `?{name}`.",
    )


def _check_output_dims(definition: Definition) -> None:
    always = [item for item in definition.inputs if item.arity != "optional"]
    bound = {name for item in always for name in item.shape.binds()} | _int_attributes(definition)
    batches = {item.shape.batch for item in always}
    sometimes = {name for item in definition.inputs for name in item.shape.binds()} - bound
    for output in definition.outputs:
        if output.mirrors is not None:
            continue
        if output.shape.batch is not None and output.shape.batch not in batches:
            _fail(
                definition,
                f"output `{output.name}`: no input that is always there has the leading group `*{output.shape.batch}`.",
            )
        for dim in output.shape.dims:
            if isinstance(dim, Anything):
                _fail(
                    definition,
                    f"output `{output.name}`: `_` says nothing about its size. Name the dimension, or write `?k` for a"
                    " size that only the kernel knows.",
                )
            for name in names(dim) if isinstance(dim, Name | Binary | Call) else ():
                if name in sometimes:
                    _fail(
                        definition,
                        f"output `{output.name}`: `{dim}` needs `{name}`, which only optional inputs bind. An input"
                        " that is always there must bind it.",
                    )
                _check_known(definition, f"output `{output.name}`: `{dim}`", name, bound)


def _check_constants(definition: Definition) -> None:
    """What no sizes can make possible: `7//0`, or a number beyond 64 bits."""
    for role, items in (("input", definition.inputs), ("output", definition.outputs)):
        for item in items:
            for dim in item.shape.dims:
                try:
                    if isinstance(dim, Binary | Call):
                        compute_constants(dim)
                except DimError as error:
                    _fail(
                        definition,
                        f'{role} `{item.name}` is "{item.shape}", and `{dim}` is no size: {error}. Correct the'
                        " expression.",
                    )


def _check_output_dtypes(definition: Definition) -> None:
    bound = {item.element.name for item in definition.inputs if item.arity != "optional"}
    for output in definition.outputs:
        if output.mirrors is None and not output.element.is_fixed and output.element.name not in bound:
            _fail(
                definition,
                f"output `{output.name}` is {output.element.name}, but no input that is always there is. Write a fixed"
                f" dtype, such as {_COMMON.get(output.element.name, 'Float32')}, or the class of an input.",
            )
