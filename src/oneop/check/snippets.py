"""Python, ready to paste, that shows a failure again."""

import textwrap
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oneop.check.cases import Case, flat
from oneop.check.layouts import LAYOUTS

if TYPE_CHECKING:
    from oneop.check.columns import Column
    from oneop.check.session import Session
    from oneop.operator import Operator

LITERAL = 96
"""The most elements of a tensor that is written out."""


def snippet(session: "Session", column: "Column", title: str, case: Case) -> str:
    """Loads the definition file, makes the inputs, shows the numbers, and looks at the property again: it raises
    AssertionError.
    """
    return snippet_of(session.subject.operator, column.title, title, case)


def snippet_of(operator: "Operator", column: str, title: str, case: Case) -> str:
    """The same for a column that is named."""
    lines = [
        "import torch",
        "from torch import inf, nan",
        "",
        "import oneop",
        "from oneop.testing import assert_property",
        "",
        *_loading(operator.defined_in, case.definition.name),
        "",
        *_tensors(operator, case),
        f"attributes = {_attributes(case)}",
        "",
    ]
    if title == "values" and not case.definition.native_only and not case.definition.is_gradient:
        lines += [
            'print("operator:", op(*inputs, **attributes))',
            'print("reference:", op.reference(*inputs, **attributes))',
        ]
    lines.append(f"assert_property(op, {title!r}, inputs, attributes, column={column!r}, seed={case.seed})")
    return "\n".join(lines) + "\n"


def _loading(path: str, name: str) -> list[str]:
    return [f"oneop.registry.load_file({path!r})", f"op = oneop.registry.operators()[{name!r}]"]


def _tensors(operator: "Operator", case: Case) -> list[str]:
    if case.origin != "drawn":
        from oneop.check.examples import names_of

        place = names_of(operator).index(case.origin)
        return [
            "given = op.examples[" + str(place) + "]()  # " + case.origin,
            "inputs, attributes = oneop.testing.split(op, given)",
        ]
    lines: list[str] = []
    parts: list[str] = []
    for item, value in zip(case.definition.inputs, case.inputs, strict=True):
        if value is None:
            parts.append("None")
            continue
        names = []
        for index, tensor in enumerate(flat([value])):
            name = item.name if item.arity != "variadic" else f"{item.name}_{index}"
            label = item.name if item.arity != "variadic" else f"{item.name}[{index}]"
            names.append(_variable(name))
            lines += _tensor(names[-1], tensor, case.made.get(label))
        parts.append(f"[{', '.join(names)}]" if item.arity == "variadic" else names[0])
    return [*lines, f"inputs = [{', '.join(parts)}]"]


def _variable(name: str) -> str:
    return f"{name}_" if name in ("op", "torch", "oneop", "inputs", "attributes", "inf", "nan") else name


def _tensor(name: str, tensor: Tensor, made: Any) -> list[str]:
    dtype = str(tensor.dtype)
    if tensor.numel() > LITERAL and made is not None:
        return [
            "from oneop.check.constraints import Bounds",
            "from oneop.check.values import Made, make",
            f"{name} = make({tuple(tensor.shape)}, {dtype}, {made!r})",
        ]
    if tensor.numel() == 0:
        lines = [f"{name} = torch.zeros({tuple(tensor.shape)}, dtype={dtype})"]
    else:
        plain = f"torch.tensor({tensor.tolist()!r}, dtype={dtype})"
        lines = textwrap.wrap(f"{name} = {plain}", 110, subsequent_indent="    ", break_long_words=False)
    layout = made.layout if made is not None else "contiguous"
    if layout != "contiguous" and torch.Size(tensor.shape) is not None:
        lines.append(f"{name} = {LAYOUTS[layout].code.format(x=name)}")
    return lines


def _attributes(case: Case) -> str:
    return "{" + ", ".join(f"{name!r}: {value!r}" for name, value in case.attributes.items()) + "}"
