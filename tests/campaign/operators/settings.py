"""An operator in C with attributes of every kind."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("campaign::settings", kernels=["settings.c"], dtypes=["float32"])
def settings(
    x: Float[Tensor, "n"],
    *,
    scale: float,
    times: int = 2,
    negate: bool = False,
    mode: Literal["sum", "product"] = "sum",
    word: str = "oneop",
    factors: list[float] = (1.0, 0.5),
    shifts: list[int] = (),
    names: list[str] = ("a", "bc"),
    extra: float | None = None,
) -> Float[Tensor, "n*times"]:
    value = sum(factors) + sum(shifts) + len(word) + sum(map(len, names)) + (0.0 if extra is None else extra)
    y = x * scale + value if mode == "sum" else x * scale * value
    return (-y if negate else y).repeat_interleave(times)


@settings.example(times="0 <= times <= 3")
def everything():
    attributes = {"scale": 1.5, "negate": True, "mode": "product", "shifts": [1, -2], "extra": 0.25}
    return torch.randn(3), attributes
