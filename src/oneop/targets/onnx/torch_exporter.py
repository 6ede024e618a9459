"""Everything here that rests on how torch 2.13's ONNX exporter works inside. Nothing else in oneop does.

While torch translates a graph, onnxscript's current evaluator records nodes. After that torch calls ``convert_version``
and ``optimize`` of its handle to onnxscript, and both replace every model-local function by its body. So a function can
only be added between the two, at the opset version the model then has, and has to be out of the way of the second.
"""

import contextlib
import copy
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
from onnxscript import evaluator

_lock = threading.Lock()
_PATCHED = "_oneop_hooks"


def record_node(
    identifier: tuple[str, str],
    inputs: Sequence[ir.Value | None],
    attributes: Sequence[ir.Attr],
    outputs: int,
    meta: dict[str, Any],
) -> Any:
    """Adds a node to the graph that torch is translating; returns its output, or the sequence of its outputs.

    The recorder makes outputs that torch's own translations can compute with. It is asked for a node without inputs,
    which then gets exactly ours: the recorder would drop absent ones at the end.
    """
    domain, op_type = identifier
    formal = [onnx.defs.OpSchema.FormalParameter(f"output_{index}", "tensor(float)") for index in range(outputs)]
    blank = onnx.defs.OpSchema(op_type, domain, 1, outputs=formal)
    recorder: Any = evaluator.default()
    result = recorder.eval(blank, [], {})
    node = (result if outputs == 1 else result[0]).producer()
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)
    for attribute in attributes:
        node.attributes.add(attribute)
    node.meta.update(meta)
    return result


@dataclass(frozen=True)
class Steps:
    """What is to happen while torch exports a model that holds nodes of oneop's; other models come out as ever.

    ``require_version`` may refuse the opset version that the model is converted to. ``complete`` comes when it has that
    version. ``functions_of`` names the functions that torch's optimizer may not replace by their bodies. For every
    model, ``protect`` comes before the optimizer, which takes two zeros for equal, and ``restore`` after it: it drops
    absent inputs at the end, and constants.
    """

    require_version: Callable[[ir.Model, int], None]
    complete: Callable[[ir.Model], None]
    functions_of: Callable[[ir.Model], list[ir.Function]]
    protect: Callable[[ir.Model], None]
    restore: Callable[[ir.Model], None]


def install_hooks(steps: Steps) -> bool:
    """Makes torch's exporter take the steps, once a process. Returns whether this torch has such an exporter."""
    with _lock:
        try:
            from torch.onnx._internal._lazy_import import onnxscript_apis  # type: ignore[attr-defined]

            if getattr(onnxscript_apis, _PATCHED, False) is True:
                return True
            convert, optimize = onnxscript_apis.convert_version, onnxscript_apis.optimize
        except (ImportError, AttributeError):
            return False
        _share_registry()

        @functools.wraps(convert)
        def convert_version(model: ir.Model, target_version: int) -> ir.Model:
            steps.require_version(model, target_version)
            converted: ir.Model = convert(model, target_version)
            steps.complete(converted)
            return converted

        @functools.wraps(optimize)
        def optimize_around(model: ir.Model) -> ir.Model:
            functions, imports = steps.functions_of(model), dict(model.opset_imports)
            for function in functions:
                del model.functions[function.identifier()]
            steps.protect(model)
            result: ir.Model = optimize(model)
            for function in functions:
                result.functions[function.identifier()] = function
                for domain in function.opset_imports:
                    result.opset_imports.setdefault(domain, imports[domain])
            steps.restore(result)
            return result

        onnxscript_apis.convert_version = convert_version
        onnxscript_apis.optimize = optimize_around
        setattr(onnxscript_apis, _PATCHED, True)
        return True


def _share_registry() -> None:
    """Has torch read its table of translations once a process, not once an export: that takes longer than all else.

    Each body is an export of its own. Where torch has no such table any more, nothing changes.
    """
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        read = ONNXRegistry.from_torchlib
    except (ImportError, AttributeError):
        return
    known: dict[tuple[Any, ...], Any] = {}

    def from_torchlib(*args: Any, **kwargs: Any) -> Any:
        key = (*args, *sorted(kwargs.items()))
        if key not in known:
            with _without_warnings():
                known[key] = read(*args, **kwargs)
        mine = copy.copy(known[key])
        mine.functions = {target: list(found) for target, found in known[key].functions.items()}
        return mine

    ONNXRegistry.from_torchlib = staticmethod(from_torchlib)  # type: ignore[method-assign]


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """torch names each operator of torchvision that it will not translate, where that is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
