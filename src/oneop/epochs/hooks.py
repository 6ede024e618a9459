"""How many hooks a model, its parameters and its optimizers have, and where the newest was registered."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from oneop.epochs.records import Place
from oneop.epochs.sources import hook_line

_OF_MODULES = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_OF_PARAMETERS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_OF_OPTIMIZERS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")

OWN = "of_oneop_epochs"
"""An attribute of the hooks that a watch registers itself: they are not counted."""

Key = tuple[str, str]


def count_hooks(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[Key, int]:
    """How many hooks of each kind everything has that has any: by (kind, name)."""
    return {key: len(hooks) for key, hooks, _ in _hooks(model, optimizers)}


def newest_hook(model: nn.Module, optimizers: Sequence[Optimizer], key: Key) -> Place | None:
    """Where the hook that was registered last was registered."""
    for found, hooks, owner in _hooks(model, optimizers):
        if found == key:
            hook: Callable[..., Any] = next(reversed(hooks.values()))
            module = found[1] if found[0] in _OF_MODULES else None
            return hook_line(hook, f"a hook on {owner}", module or None)
    return None


def _hooks(
    model: nn.Module, optimizers: Sequence[Optimizer]
) -> Iterator[tuple[Key, dict[int, Callable[..., Any]], str]]:
    for name, module in model.named_modules():
        for kind in _OF_MODULES:
            if hooks := _of_user(module.__dict__.get(kind)):
                whose = f"module `{name}`" if name else "the model itself"
                yield (kind, name), hooks, f"{whose} ({type(module).__name__})"
    for name, parameter in model.named_parameters():
        for kind in _OF_PARAMETERS:
            if hooks := _of_user(getattr(parameter, kind, None)):
                yield (kind, name), hooks, f"parameter `{name}`"
    for number, optimizer in enumerate(optimizers):
        for kind in _OF_OPTIMIZERS:
            if hooks := _of_user(getattr(optimizer, kind, None)):
                yield (kind, str(number)), hooks, f"optimizer {type(optimizer).__name__}"


def _of_user(hooks: dict[int, Callable[..., Any]] | None) -> dict[int, Callable[..., Any]]:
    """All but those of a watch."""
    return {number: hook for number, hook in hooks.items() if not hasattr(hook, OWN)} if hooks else {}
