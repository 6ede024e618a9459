"""Cases for the tests of the driver, and the results by the names of their rows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import oneop
from oneop.check import native
from oneop.check.cases import Case, Structure, flat
from oneop.check.results import Result
from oneop.definition.dtypes import BY_NAME


def case(operator: oneop.Operator, inputs: Sequence[Any], **attributes: Any) -> Case:
    """A call with the attributes' defaults for those that are not given."""
    definition = operator.definition
    dtypes = {
        item.element.name: BY_NAME[str(tensor.dtype).removeprefix("torch.")]
        for item, value in zip(definition.inputs, inputs, strict=True)
        for tensor in flat([value])
    }
    values = {item.name: attributes.get(item.name, item.default) for item in definition.attributes}
    structure = Structure(tuple(dtypes.get(element.name, element.dtypes[0]) for element in definition.elements))
    return Case(definition, structure, tuple(inputs), values)


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def run(operator: oneop.Operator, cases: Sequence[Case], sanitizer: Any = None, **options: Any) -> dict[str, Result]:
    return {result.property: result for result in native.findings(operator, cases, sanitizer, **options)}


def failures(results: dict[str, Result]) -> dict[str, str]:
    """The summary of each row that failed."""
    return {
        name: result.finding.summary
        for name, result in results.items()
        if result.status == "failed" and result.finding is not None
    }
