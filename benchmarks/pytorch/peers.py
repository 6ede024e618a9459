"""The same operator as people write it today: in C++ by hand, and with torch.library.custom_op."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oneop.kernels.building import Library, Unit, build

Operator = Callable[..., Tensor]


def handwritten() -> Operator:
    """peer.cpp, compiled and loaded: TORCH_LIBRARY and torch::autograd::Function."""
    root = Path(torch.__file__).parent
    library = Library(
        title="the hand-written C++ operator to compare with",
        stem="oneop_benchmark_peer",
        units=(Unit("peer", "c++", path=Path(__file__).with_name("peer.cpp"), flags=("-std=c++20",)),),
        system_dirs=(root / "include", root / "include" / "torch" / "csrc" / "api" / "include"),
        flags=(f'-DTORCH="{torch.__version__}"',),
        link_flags=(f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"),
        allow_undefined=True,
    )
    torch.ops.load_library(str(build(library)))
    operator: Operator = torch.ops.peer.muladd
    return operator


def custom_op() -> Operator:
    """torch.library.custom_op with a registered gradient, in Python."""

    @torch.library.custom_op("peer::muladd_python", mutates_args=())
    def muladd(x: Tensor, w: Tensor, alpha: float = 1.0) -> Tensor:
        return torch.mul(x, w).mul_(alpha)

    def setup(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        x, w, ctx.alpha = inputs
        ctx.save_for_backward(x, w)

    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, w = context.saved_tensors
        needs_x, needs_w, _ = context.needs_input_grad
        return (
            torch.mul(grad, w).mul_(context.alpha) if needs_x else None,
            torch.mul(grad, x).mul_(context.alpha) if needs_w else None,
            None,
        )

    muladd.register_fake(lambda x, w, alpha=1.0: torch.empty_like(x))
    muladd.register_autograd(backward, setup_context=setup)
    return muladd
