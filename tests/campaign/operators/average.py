"""Means of rows in every floating dtype: halves are added up as float."""

import torch
from jaxtyping import Float
from torch import Tensor

import oneop


@oneop.op("campaign::average", kernels=["average.cpp"], dtypes=["float32", "float16", "bfloat16"])
def average(x: Float[Tensor, "n m"]) -> Float[Tensor, "n"]:
    return x.mean(1)


@average.example(m="1 <= m")
def long_rows():
    return (torch.rand(3, 2000).half() + 1,)
