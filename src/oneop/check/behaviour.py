"""The rows that are no comparison of numbers: shapes, aliasing, inputs, repeated, threaded and concurrent calls."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from oneop.check import evidence, memory, oracle, transforms
from oneop.check.cases import Case, flat
from oneop.check.columns import EAGER, Column, Dispatched, Exported, Runner, require_sizes
from oneop.check.drawing import ORDINARY, Focus
from oneop.check.results import Finding
from oneop.check.session import LONG, Clock, Outcome, Session, one_case, search
from oneop.check.subject import Call, inputs_differ, same_bits

Look = Callable[[Session, Column, str, Case], Finding | None]

PIECES = (LONG, Focus("many pieces", sizes=("large", "small"), styles=("random",)), ORDINARY)
"""What is split among threads, and what is not."""
CALLERS = 8
_POISON = (float("nan"), 3e38, -1.0, 0.0)
"""What freed memory is filled with between calls: an output that nobody writes then shows one of them."""


def cell(title: str, look: Look, focuses: Sequence[Focus], *, share: float = 0.2) -> Callable[..., Outcome]:
    """A cell that looks at each case with one function."""

    def run(session: Session, column: Column, clock: Clock) -> Outcome:
        return search(
            session, column, lambda case: look(session, column, title, case), clock, focuses=focuses, share=share
        )

    return run


def fake_shapes(session: Session, column: Column, title: str, case: Case) -> Finding | None:
    """Sizes, dtypes and strides of the fake tensors, as torch.export and torch.compile see them, against real ones."""
    real = run(session, column, case)
    if isinstance(column, Exported):
        return _exported_shapes(session, column, title, case)
    operator = session.subject.operator
    # Sizes that only the kernel knows become symbols, which need an environment; those of the inputs stay numbers.
    environment = ShapeEnv()
    with FakeTensorMode(allow_non_fake_inputs=False, shape_env=environment, static_shapes=True) as mode:
        tensors = [mode.from_tensor(tensor) for tensor in case.tensors]
        fake = session.subject.named(
            operator.torch_op(*case.with_inputs(tensors).inputs, **case.attributes), case.inputs, case.attributes
        )
    for (name, seen), (_, given) in zip(fake, real, strict=True):
        if seen.dtype != given.dtype:
            return evidence.plain(
                session, column, title, case, f"{name} is {given.dtype}, and {seen.dtype} in a fake call"
            )
        if seen.ndim != given.ndim or not all(_fits(a, b) for a, b in zip(seen.shape, given.shape, strict=True)):
            shape = ["?" if not isinstance(size, int) else size for size in seen.shape]
            return evidence.plain(
                session, column, title, case, f"{name} has shape {tuple(given.shape)}, and {shape} in a fake call"
            )
    return None


def _fits(seen: Any, given: int) -> bool:
    return not isinstance(seen, int) or seen == given


def _exported_shapes(session: Session, column: Exported, title: str, case: Case) -> Finding | None:
    """The sizes that torch.export worked out, with those of the call in the place of its symbols."""
    program = column.programs.program(case)
    require_sizes(program, case.tensors)
    nodes = {node.name: node for node in program.graph.nodes}
    symbols: dict[str, int] = {}
    for name, tensor in zip(program.graph_signature.user_inputs, case.tensors, strict=True):
        for size, own in zip(nodes[str(name)].meta["val"].shape, tensor.shape, strict=True):
            if not isinstance(size, int):
                symbols[str(size)] = own
    real = flat_outputs(run(session, column, case))
    stated = [nodes[str(name)].meta["val"] for name in program.graph_signature.user_outputs]
    for index, (seen, given) in enumerate(zip(stated, real, strict=True)):
        shape = [size if isinstance(size, int) else _value(size, symbols) for size in seen.shape]
        if len(shape) != given.ndim or not all(a is None or a == b for a, b in zip(shape, given.shape, strict=True)):
            said = tuple("?" if size is None else size for size in shape)
            return evidence.plain(
                session, column, title, case, f"output {index} has shape {tuple(given.shape)}; torch.export says {said}"
            )
    return None


def _value(size: Any, symbols: dict[str, int]) -> int | None:
    """None where the size has a symbol that only the values of the tensors decide."""
    expression = size.node.expr
    names = {str(symbol) for symbol in expression.free_symbols}
    if not names <= symbols.keys():
        return None
    return int(expression.subs({symbol: symbols[str(symbol)] for symbol in expression.free_symbols}))


def file_shapes(session: Session, column: Column, title: str, case: Case) -> Finding | None:
    """The sizes that the exported file states of its outputs, and those that onnx infers, against real ones."""
    from oneop.targets.onnx.stating import stated_shapes

    assert isinstance(column, Runner)
    real = flat_outputs(run(session, column, case))
    path = column.file(case)
    sizes = [tuple(tensor.shape) for tensor in case.tensors]
    for source, shapes in stated_shapes(path, sizes).items():
        for index, (stated, tensor) in enumerate(zip(shapes, real, strict=True)):
            if stated is None:
                continue
            if len(stated) != tensor.ndim or not all(
                a is None or a == b for a, b in zip(stated, tensor.shape, strict=True)
            ):
                said = tuple("?" if size is None else size for size in stated)
                return evidence.plain(
                    session,
                    column,
                    title,
                    case,
                    f"output {index} has shape {tuple(tensor.shape)}; {source} says {said}",
                )
    return None


def aliasing(session: Session, column: Column, title: str, case: Case) -> Finding | None:
    """No output shares memory with an input or with another output."""
    results = run(session, column, case)
    seen = {tensor.untyped_storage().data_ptr(): label for label, tensor in zip(case.labels, case.tensors, strict=True)}
    for name, tensor in results:
        pointer = tensor.untyped_storage().data_ptr()
        if tensor.numel() and pointer in seen:
            return evidence.plain(session, column, title, case, f"{name} shares memory with {seen[pointer]}")
        seen[pointer] = name
    return None


def unchanged(session: Session, column: Column, title: str, case: Case) -> Finding | None:
    """The bits of each input are the same after the call, and so is the memory around views."""
    before = [tensor.clone() for tensor in case.tensors]
    storages = [tensor.untyped_storage().clone() for tensor in case.tensors]
    run(session, column, case)
    changed = inputs_differ(before, case.tensors)
    around = [
        label
        for label, kept, tensor in zip(case.labels, storages, case.tensors, strict=True)
        if bytes(kept) != bytes(tensor.untyped_storage())
    ]
    if changed is None and not around:
        return None
    label = case.labels[changed] if changed is not None else around[0]
    restored = case.with_inputs(before)
    for tensor, storage in zip(case.tensors, storages, strict=True):
        tensor.untyped_storage().copy_(storage)
    return evidence.plain(session, column, title, restored, f"the call changed its input {label}", also=case)


def determinism(session: Session, column: Column, title: str, case: Case) -> Finding | None:
    """The same bits every time, whatever stood in the memory before."""
    first: list[Tensor] | None = None
    for index in range(4):
        _poison(case, _POISON[index % len(_POISON)])
        results = [tensor.clone() for _, tensor in run(session, column, case)]
        if first is None:
            first = results
        for (name, _), tensor, kept in zip(run_names(session, case, results), results, first, strict=True):
            if not same_bits(tensor, kept):
                return evidence.differing(
                    session,
                    column,
                    title,
                    case,
                    name,
                    kept,
                    tensor,
                    f"{name} differs between two calls with the same inputs",
                )
    return None


def run_names(session: Session, case: Case, results: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    names = [item.name for item in session.subject.definition.outputs]
    return [(names[index] if index < len(names) else f"output {index}", t) for index, t in enumerate(results)]


def _poison(case: Case, value: float) -> None:
    """Fills memory like that of the outputs, and frees it: the next call is likely to get it."""
    sizes = {tensor.numel() * tensor.element_size() for tensor in case.tensors} | {8, 64}
    blocks = [torch.full((max(size // 8, 1),), value, dtype=torch.float64) for size in sizes for _ in range(3)]
    del blocks


def threads(session: Session, column: Column, title: str, case: Case) -> Finding | None:
    """The answer on one thread and on many, each against the reference; against one another where there is none."""
    subject = session.subject
    many = max(4, os.cpu_count() or 1)
    results = {count: _on_threads(session, column, case, count) for count in (1, many, many)}
    if not subject.has_reference:
        return _same_on_threads(session, column, title, case, results[1], results[many])
    wanted = oracle.expect(subject, transforms.values, case, float32_attributes=column.float32_attributes)
    for count, got in results.items():
        found = oracle.mismatch(got, wanted)
        if found is not None:
            noun = "1 thread" if count == 1 else f"{count} threads"
            return evidence.of_mismatch(
                session, column, title, transforms.values, case, got, wanted, found, prefix=f"on {noun}: "
            )
    return None


def _same_on_threads(
    session: Session, column: Column, title: str, case: Case, one: list[Any], many: list[Any]
) -> Finding | None:
    for (name, left), (_, right) in zip(one, many, strict=True):
        if not torch.allclose(left.double(), right.double(), rtol=1e-4, atol=1e-6, equal_nan=True):
            return evidence.differing(
                session, column, title, case, name, left, right, f"{name} differs between 1 thread and many"
            )
    return None


def _on_threads(session: Session, column: Column, case: Case, count: int) -> list[Any]:
    if isinstance(column, Runner):
        result = column.run(case, case.inputs, count)
        return session.subject.named(result, case.inputs, case.attributes)
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return run(session, column, case)
    finally:
        torch.set_num_threads(before)


def callers_cell(session: Session, column: Column, clock: Clock) -> Outcome:
    """One call that takes long enough for the callers to meet in it."""
    return one_case(session, column, lambda case: callers(session, column, "concurrent callers", case), LONG)


def callers(session: Session, column: Column, title: str, case: Case) -> Finding | None:
    """Eight callers at once, each with numbers of its own, get what each gets alone."""
    cases = [case, *(_rolled(session, case, index) for index in range(1, CALLERS))]
    for item in cases:
        oracle.require_taken(session.subject, item)
    calls = [_own_call(session, column, item) for item in cases]
    alone = [
        session.subject.named(call(c.inputs, c.attributes), c.inputs, c.attributes)
        for call, c in zip(calls, cases, strict=True)
    ]
    kept = [[tensor.clone() for _, tensor in named] for named in alone]
    wrong: list[tuple[Case, str, Tensor, Tensor]] = []
    errors: list[Exception] = []
    gate = threading.Barrier(CALLERS)
    repeats = session.effort.repeats[0 if column.title == EAGER else 1]

    def work(index: int) -> None:
        own = cases[index]
        gate.wait()
        for _ in range(repeats):
            try:
                results = session.subject.named(calls[index](own.inputs, own.attributes), own.inputs, own.attributes)
            except Exception as error:
                errors.append(error)
                return
            for (name, tensor), known in zip(results, kept[index], strict=True):
                if not _close(tensor, known):
                    wrong.append((own, name, known, tensor))
                    return

    with _quick_switches():
        workers = [threading.Thread(target=work, args=(index,)) for index in range(CALLERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    if errors:
        raise errors[0]
    if wrong:
        own, name, known, tensor = wrong[0]
        return evidence.differing(
            session,
            column,
            title,
            own,
            name,
            known,
            tensor,
            f"{name} is wrong when {CALLERS} callers call at once",
            also=case,
        )
    return None


def _close(left: Tensor, right: Tensor) -> bool:
    """The same but for a rounding: pieces of a sum may be added in another order."""
    if not left.dtype.is_floating_point:
        return bool(torch.equal(left, right))
    if left.shape != right.shape:
        return False
    scale = max(float(right.double().abs().nan_to_num(0, 0, 0).max()) if right.numel() else 0.0, 1e-30)
    bound = 64 * torch.finfo(left.dtype).eps * scale
    difference = (left.double() - right.double()).abs()
    return bool(((difference <= bound) | (left == right) | (left.isnan() & right.isnan())).all())


def _rolled(session: Session, case: Case, index: int) -> Case:
    """The same call with other numbers where no constraint binds them."""
    names = [label.partition("[")[0] for label in case.labels]
    free = [name not in session.subject.constraints.found for name in names]
    tensors = [
        tensor * (1 + index) if ok and tensor.dtype.is_floating_point else tensor.clone()
        for ok, tensor in zip(free, case.tensors, strict=True)
    ]
    return case.with_inputs(tensors)


def _own_call(session: Session, column: Column, case: Case) -> Call:
    if isinstance(column, Runner):
        require_sizes(column.programs.program(case), case.tensors)
        path = column.file(case)
        return column.caller(case, path)
    if column.title == EAGER:
        return Dispatched(session.subject).call(case)
    return column.call(case)


@contextmanager
def _quick_switches() -> Iterator[None]:
    """Python hands its lock on every 10 microseconds, so that callers meet inside kernels."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def opcheck(session: Session, column: Column, title: str, case: Case) -> Finding | None:
    """torch.library.opcheck: schema, autograd registration, fake tensors, AOT dispatch with symbolic sizes."""
    operator = session.subject.operator
    differentiable = session.subject.is_differentiable
    tensors = [
        tensor.detach().clone().requires_grad_(differentiable) if tensor.dtype.is_floating_point else tensor
        for tensor in case.contiguous().tensors
    ]
    given = case.with_inputs(tensors)
    oracle.expect(session.subject, transforms.values, case) if session.subject.has_reference else None
    utilities = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if 0 in [size for tensor in tensors for size in tensor.shape] or session.subject.definition.is_gradient:
        utilities = utilities[:3]
    found = torch.library.opcheck(
        operator.torch_op, given.inputs, given.attributes, test_utils=utilities, raise_exception=False
    )
    for name, result in found.items():
        if result != "SUCCESS":
            text = str(result)
            return evidence.plain(session, column, title, case, f"{name}: {text.strip().splitlines()[0]}", details=text)
    return None


def memory_cell(session: Session, column: Column, clock: Clock) -> Outcome:
    """Thousands of calls, with the gradient where there is one: memory and live objects stay as they are."""
    focus = Focus("some calls", styles=("simple",), attributes="default")
    return one_case(session, column, lambda case: memory_of(session, column, case, clock), focus)


def memory_of(session: Session, column: Column, case: Case, clock: Clock) -> Finding | None:
    """One call, again and again."""
    if session.subject.has_reference:
        oracle.expect(session.subject, transforms.values, case, float32_attributes=column.float32_attributes)
    grown = memory.growth(_repeated(session, column, case), session.effort.calls, clock)
    return None if grown is None else evidence.plain(session, column, "memory", case, grown)


def _repeated(session: Session, column: Column, case: Case) -> Callable[[], None]:
    subject = session.subject
    call = column.call(case)
    differentiates = (
        column.title == EAGER
        and subject.is_differentiable
        and (subject.has_reference or subject.operator.gradient_operator is not None)
        and any(tensor.dtype.is_floating_point for tensor in case.tensors)
    )

    def step() -> None:
        if differentiates:
            transforms.gradient(subject, call, case)
        else:
            call(case.inputs, case.attributes)

    return step


def run(session: Session, column: Column, case: Case) -> list[tuple[str, Tensor]]:
    """The column's results; refused where the reference refuses the call."""
    oracle.require_taken(session.subject, case)
    return transforms.values(session.subject, column.call(case), case)


def flat_outputs(named: Sequence[tuple[str, Tensor]]) -> list[Tensor]:
    return flat([tensor for _, tensor in named])


LOOKS: dict[str, Look] = {
    "fake shapes": fake_shapes,
    "shapes in the file": file_shapes,
    "no aliasing": aliasing,
    "inputs unchanged": unchanged,
    "determinism": determinism,
    "threads": threads,
    "concurrent callers": callers,
    "opcheck": opcheck,
}
"""What looks at one case, by the row's title."""
