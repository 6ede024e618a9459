"""Traces an operator's reference with torch.export: sizes free and float attributes symbolic where the reference
allows it.
"""

import contextlib
import io
import itertools
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch

from oneop.errors import ExportError
from oneop.targets.onnx import emptying, guards, sampling, translating
from oneop.targets.onnx.calls import Call
from oneop.targets.onnx.nodes import float32

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far a result may be from the one with Python's floats, relative to 1 or to the result: a few roundings of the
dtype.
"""


@dataclass(frozen=True)
class Trace:
    """A reference as a graph, of torch and of ONNX. ``symbolic`` names the float attributes that are its last inputs;
    the others are constants in it.
    """

    program: torch.export.ExportedProgram
    model: ir.Model
    symbolic: tuple[str, ...]
    static: bool

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Those of the outputs."""
        outputs = self.program.graph.output_node().args[0]
        assert isinstance(outputs, tuple)
        return [node.meta["val"].dtype for node in outputs]


class RefusedError(Exception):
    """A trace that was tried is not to be had, or not to be trusted."""


def trace(call: Call, opset_version: int) -> Trace:
    """The most general trace of the reference that agrees with it. Raises ExportError where there is none."""
    if call.definition.native_only:
        raise no_fallback(call, "native_only=True says that there is no reference")
    floats = [
        item.name
        for item in call.definition.attributes
        if item.kind.name == "float" and call.attributes[item.name] is not None and not call.definition.is_gradient
    ]
    reasons: list[Exception] = []
    for static in (False, True):
        for symbolic in _selections(call, floats, static, opset_version):
            try:
                return _trace(call, symbolic, static, opset_version)
            except RefusedError as refusal:
                reasons.append(refusal)
    cause = reasons[-1].__cause__
    if cause is None and not any(None in tensor.sizes for _, tensor in call.tensors()):
        raise no_fallback(call, f"what torch.export makes of it does not do the same ({reasons[-1]})")
    if cause is None or "Constraints violated" in str(cause):
        raise no_fallback(call, f"some sizes are free in this model, and it does not do the same at all ({reasons[0]})")
    raise no_fallback(call, first_line(cause)) from cause


def no_fallback(call: Call, cause: str) -> ExportError:
    rewrite = (
        ""
        if call.definition.native_only
        else "Rewrite the reference in operations that torch.onnx.export takes, or export"
    )
    return ExportError(
        f"{call.definition.name}: its reference cannot become an ONNX function: {cause}. "
        f'{rewrite or "Write a reference, or export"} with fallback="none" and run the file with the operator\'s '
        "native library."
    )


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.') if lines else 'no message'}"


def _selections(call: Call, floats: Sequence[str], static: bool, opset_version: int) -> Iterator[tuple[str, ...]]:
    """Which float attributes to keep symbolic: all; if that fails, those that can be alone; none."""
    yield tuple(floats)
    if len(floats) > 1:
        alone = tuple(name for name in floats if _is_possible(call, (name,), static, opset_version))
        if 0 < len(alone) < len(floats):
            yield alone
    if floats:
        yield ()


def _is_possible(call: Call, symbolic: tuple[str, ...], static: bool, opset_version: int) -> bool:
    try:
        _trace(call, symbolic, static, opset_version)
    except RefusedError:
        return False
    return True


def _trace(call: Call, symbolic: tuple[str, ...], static: bool, opset_version: int) -> Trace:
    with quiet():
        program, dims, shapes, least = _first_that_exports(call, symbolic, static)
        _require_free(program, dims)
        # What is compared is what the file is made of: on the way there torch decides once more by the example's sizes.
        model, written = _converted(program, opset_version)
        _require_contiguous(written)
        if symbolic:
            _require_agreement(call, written, symbolic, shapes)
        _require_agreement_of_sizes(call, written, symbolic, shapes, static, least)
    return Trace(program, model, symbolic, static)


def _converted(
    program: torch.export.ExportedProgram, opset_version: int
) -> tuple[ir.Model, torch.export.ExportedProgram]:
    """The graph in ONNX, and the one of torch that it was written from."""
    try:
        found = torch.onnx.export(
            program, (), opset_version=opset_version, custom_translation_table=translating.table(None), verbose=False
        )
    except ExportError:
        raise
    except Exception as error:
        cause = _innermost(error)
        raise RefusedError(first_line(cause)) from cause
    assert found is not None
    assert found.exported_program is not None
    return found.model, found.exported_program


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _require_contiguous(program: torch.export.ExportedProgram) -> None:
    """ONNX knows no strides: torch's exporter takes for granted that the input of as_strided is contiguous."""
    for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default):
        if not node.args[0].meta["val"].is_contiguous():
            raise RefusedError("as_strided of a tensor that is not contiguous has no counterpart in ONNX")


def _first_that_exports(
    call: Call, symbolic: tuple[str, ...], static: bool
) -> tuple[torch.export.ExportedProgram, list[dict[int, Any]], list[tuple[int, ...]], int | None]:
    """The program, its dimensions, the shapes that it was traced at, and the least size that torch's own guards admit;
    None where there are no guards but those of a Dim.
    """
    refused: RefusedError | None = None
    for shapes in _shapes(call, static):
        try:
            return *_exported(call, symbolic, shapes, static, guarded=False), shapes, None
        except RefusedError as refusal:
            refused = refused or refusal
            if "Constraints violated" not in str(refusal.__cause__):
                break
        with contextlib.suppress(RefusedError):
            program, dims = _exported(call, symbolic, shapes, static, guarded=True)
            least = guards.least_size(program) if _are_free(program, dims) else None
            if least is not None and guards.layout_matters(
                program,
                lambda: _run(call, sampling.tensors(call, shapes), {}),  # noqa: B023
            ):
                least = None
            if least is not None:
                return program, dims, shapes, least
    assert refused is not None
    raise refused


def _exported(
    call: Call, symbolic: tuple[str, ...], shapes: list[tuple[int, ...]], static: bool, *, guarded: bool
) -> tuple[torch.export.ExportedProgram, list[dict[int, Any]]]:
    tensors = sampling.tensors(call, shapes)
    scalars = [torch.tensor(float(call.attributes[name]), dtype=torch.float32) for name in symbolic]
    dims = [*sampling.dynamic_dims(call, shapes, static), *[{} for _ in scalars]]
    if guarded:
        dims = [dict.fromkeys(axes, torch.export.Dim.AUTO) for axes in dims]
    try:
        program = torch.export.export(
            _Reference(call, symbolic), (*tensors, *scalars), dynamic_shapes=(tuple(dims),), strict=False
        )
    except Exception as error:
        raise RefusedError(first_line(error)) from error
    emptying.fill_empty(program)
    return program, dims


class _Reference(torch.nn.Module):
    """The reference of a call as a module whose inputs are the tensors that are there, then the symbolic attributes."""

    def __init__(self, call: Call, symbolic: tuple[str, ...]) -> None:
        super().__init__()
        self.call, self.symbolic = call, symbolic

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        split = len(values) - len(self.symbolic)
        return _run(self.call, values[:split], dict(zip(self.symbolic, values[split:], strict=True)))


def _run(call: Call, tensors: Sequence[torch.Tensor], replaced: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The outputs of the reference, flat."""
    inputs, attributes = _arguments(call, tensors)
    if call.definition.is_gradient:
        returned = call.operator.torch_reference(*inputs, **attributes)
    else:
        returned = call.operator.call_reference(*inputs, **{**attributes, **replaced})
    values = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    return tuple(tensor for value in values for tensor in (value if isinstance(value, tuple | list) else [value]))


def _arguments(call: Call, tensors: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    rest = iter(tensors)
    inputs: list[Any] = []
    for item, present in zip(call.definition.inputs, call.inputs, strict=True):
        found = [next(rest) for _ in present]
        inputs.append(found if item.arity == "variadic" else found[0] if found else None)
    attributes = {name: list(value) if isinstance(value, tuple) else value for name, value in call.attributes.items()}
    return inputs, attributes


def _shapes(call: Call, static: bool) -> Iterator[list[tuple[int, ...]]]:
    """The shapes at which the reference runs; those nearest to the call's where it runs at none."""
    candidates = list(sampling.samples(call))
    if static:
        candidates = candidates[-1:]
    if not candidates:
        raise RefusedError(f"no sizes fit the definition with {dict(call.attributes)}")
    runs = False
    for shapes in candidates:
        try:
            inputs, attributes = _arguments(call, sampling.tensors(call, shapes))
            with torch.no_grad():
                call.operator.torch_reference(*inputs, **attributes)
        except Exception as error:  # the author's code may raise anything; these shapes are only tried
            logging.getLogger(__name__).debug("%s does not run at %s: %s", call.definition.name, shapes, error)
            continue
        runs = True
        yield shapes
    if not runs:
        yield candidates[-1]


def _require_free(program: torch.export.ExportedProgram, dims: Sequence[dict[int, Any]]) -> None:
    """A trace may not have taken a free size for a constant without a word."""
    for axis, size in _sizes(program, dims):
        if isinstance(size, int):
            raise RefusedError(f"the trace holds only for size {size} in dimension {axis} of an input")


def _are_free(program: torch.export.ExportedProgram, dims: Sequence[dict[int, Any]]) -> bool:
    """Whether each size is one of its own: no constant, and no multiple of another number."""
    return not any(isinstance(size, int) or not size.node.expr.is_symbol for _, size in _sizes(program, dims))


def _sizes(
    program: torch.export.ExportedProgram, dims: Sequence[dict[int, Any]]
) -> Iterator[tuple[int, int | torch.SymInt]]:
    """The axes that should be free, and the sizes that they have in the trace."""
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    names = set(program.graph_signature.user_inputs)
    own = [node for node in inputs if node.name in names]
    for node, axes in zip(own, dims, strict=True):
        for axis in axes:
            yield axis, node.meta["val"].shape[axis]


def _require_agreement(
    call: Call, program: torch.export.ExportedProgram, symbolic: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> None:
    """With symbolic floats the graph has to give what the reference gives with Python's floats, at the call's values
    and at others.
    """
    given = _values(call, symbolic)
    others = ([1.25 * value + 0.375 for value in given], [-value - 0.5 for value in given])
    if not _agrees(call, program, symbolic, given, shapes):
        raise RefusedError("the reference does not run on the example inputs, so nothing can be compared")
    for values in others:
        _agrees(call, program, symbolic, values, shapes)


def _require_agreement_of_sizes(
    call: Call,
    program: torch.export.ExportedProgram,
    symbolic: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    static: bool,
    least: int | None,
) -> None:
    """torch.export takes for granted that a free size is not 1, and that two of them differ. A reference may ask.

    Where there is a ``least`` size, all below it are tried too, and those that the trace could have begun with.
    """
    more = () if least is None else itertools.chain(sampling.below(call, shapes, least), sampling.samples(call))
    for variant in itertools.chain(sampling.variants(call, shapes, static), more):
        _agrees(call, program, symbolic, _values(call, symbolic), variant)


def _values(call: Call, symbolic: Sequence[str]) -> list[float]:
    return [float32(float(call.attributes[name])) for name in symbolic]


def _agrees(
    call: Call,
    program: torch.export.ExportedProgram,
    symbolic: Sequence[str],
    values: Sequence[float],
    shapes: Sequence[tuple[int, ...]],
) -> bool:
    """Compares the trace with the reference. Raises RefusedError where they differ; False where one of them fails: the
    reference, or the trace at a size of 0.
    """
    tensors = sampling.tensors(call, shapes)
    try:
        wanted = _run(call, tensors, dict(zip(symbolic, values, strict=True)))
    except Exception as error:  # the author's code may raise anything
        logging.getLogger(__name__).debug("%s does not run at %s: %s", call.definition.name, shapes, error)
        return False
    scalars = [torch.tensor(value, dtype=torch.float32) for value in values]
    try:
        # ONNX has no guards and no lower bounds: what matters is what the graph computes.
        module = program.module(check_guards=False)
        module._forward_pre_hooks.clear()
        found = module(*tensors, *scalars)
    except Exception as error:
        if any(0 in shape for shape in shapes):
            return False  # a file that says so at run time is not wrong
        raise RefusedError(f"the trace does not run at the sizes {_shown(shapes)}, and the reference does") from error
    if len(wanted) != len(found) or not all(map(_close, wanted, found)):
        raise RefusedError(f"the trace and the reference differ at the sizes {_shown(shapes)}")
    return True


def _shown(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes))


def _close(wanted: torch.Tensor, found: torch.Tensor) -> bool:
    if wanted.dtype != found.dtype or wanted.shape != found.shape:
        return False
    tolerance = _TOLERANCE.get(wanted.dtype)
    if tolerance is None:
        return torch.equal(wanted, found)
    return torch.allclose(wanted, found, rtol=tolerance, atol=tolerance, equal_nan=True)


@contextmanager
def quiet() -> Iterator[None]:
    """What torch says while something is tried is not for the user: a failure is reported by whoever tried."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnx_ir", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        # torch.export prints the graph that it gives up on to stderr, past the loggers.
        with warnings.catch_warnings(), torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
