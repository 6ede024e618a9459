"""What differs between releases of torch, for Python. runtime.cpp has its own place for C++."""

import torch


def is_exporting() -> bool:
    """Whether torch.export traces. The function for it in torch 2.11 is always true in Dynamo; the flag is not."""
    return torch.compiler._is_exporting_flag
