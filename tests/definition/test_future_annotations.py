"""The same signatures under ``from __future__ import annotations``, where every annotation is a string."""

# ruff: noqa: UP037 (a shape is a string, not a quoted annotation)
from __future__ import annotations

from typing import Literal, NamedTuple

from jaxtyping import Float, Int64
from torch import Tensor

import oneop


class Best(NamedTuple):
    value: Float[Tensor, "n"]
    index: Int64[Tensor, "n"]


def test_module_level_names_resolve():
    @oneop.op("future::best")
    def best(
        x: Float[Tensor, "n m"], bias: Float[Tensor, "m"] | None = None, *, mode: Literal["max", "min"] = "max"
    ) -> Best:
        y = x if bias is None else x + bias
        return Best(*(y.max(1) if mode == "max" else y.min(1)))

    assert [item.arity for item in best.definition.inputs] == ["required", "optional"]
    assert best.definition.attribute("mode").choices == ("max", "min")
    assert [item.name for item in best.definition.outputs] == ["value", "index"]


def test_names_of_the_enclosing_function_resolve():
    class Twice(NamedTuple):
        y: Float[Tensor, "n"]

    @oneop.op("future::twice")
    def twice(x: Float[Tensor, "n"]) -> Twice:
        return Twice(2 * x)

    assert twice.output_type is Twice
