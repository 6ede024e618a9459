"""Tensors as numpy's arrays and back, bfloat16 too, which numpy itself does not have."""

from typing import Any

import torch
from torch import Tensor


def array_of(tensor: Tensor) -> Any:
    """Shares the tensor's memory. bfloat16 becomes ml_dtypes's type."""
    if tensor.dtype != torch.bfloat16:
        return tensor.detach().numpy()
    import ml_dtypes

    return tensor.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def tensor_of(array: Any) -> Tensor:
    if array.dtype.name != "bfloat16":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
