"""The benchmark itself: at each size, compares every column with the reference, then times it."""

import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oneop.bench import calls, columns, counting, machine, sizes
from oneop.bench.calls import Plan
from oneop.bench.columns import Column, Files, Gradients
from oneop.bench.expected import Expected, expect
from oneop.bench.results import BACKWARD, FORWARD, Measured, Missing, Pass, Report, Row, Status, Timing, Work
from oneop.bench.sizes import Given, Size
from oneop.bench.timing import time_call
from oneop.check.cases import Case, flat, rebuild
from oneop.check.constraints import Constraints
from oneop.check.examples import cases_of, constraints_of
from oneop.errors import CallError, OneopError
from oneop.targets.models import target_names
from oneop.targets.pytorch.reference import run_reference

if TYPE_CHECKING:
    from oneop.operator import Operator

Progress = Callable[[str, int, int], None]
"""Called before each measurement with what it is, how many are done, and how many there are."""


@dataclass(frozen=True)
class Options:
    """What is measured. Empty: what the definition suggests, every column, one thread and all of them."""

    given: Sequence[Given] = ()
    each: Sequence[int] = ()
    dtype: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    absent: Sequence[str] = ()
    targets: Sequence[str] = ()
    threads: Sequence[int] = ()
    seconds: float = 0.2
    backward: bool = True


def bench(operators: Sequence["Operator"], options: Options | None = None, progress: Progress | None = None) -> Report:
    """Measures operators, and says what went wrong in the report's ``complaints``.

    Raises OneopError where the options do not fit the operators: before anything is timed.
    """
    options = options or Options()
    chosen = _chosen(options.targets)
    plans = _plans(operators, options)
    points = [_points(plan, options) for plan in plans]
    threads = list(options.threads) or sorted({1, torch.get_num_threads()})
    dtypes = dict.fromkeys(plan.dtype for plan in plans)
    steps = _Steps(progress)
    parts = [_Operator(plan, chosen, threads, options, steps) for plan in plans]
    steps.total = len(threads) + sum(part.count * len(found) for part, found in zip(parts, points, strict=True))
    machines = []
    for count in threads:
        steps.next(f"this machine, {_threads(count)}")
        machines += [machine.measure(count, dtype) for dtype in dtypes]
    measured = [part.measure(found) for part, found in zip(parts, points, strict=True)]
    complaints = [text for item in measured for text in _complaints(item, chosen, options.targets)]
    return Report(_versions(measured), machines, measured, complaints)


def _points(plan: Plan, options: Options) -> list[Size]:
    found = sizes.sizes_of(plan.definition, options.given, options.each, plan.constraints, plan.attributes)
    for size in found:
        calls.check_call(plan, size)
    return found


def _chosen(targets: Sequence[str]) -> list[Column]:
    """The columns of these targets, or of these names; all if none is given."""
    there = columns.columns()
    known = dict.fromkeys(name for column in there for name in (column.target, column.name))
    for target in targets:
        if target not in known:
            problem = "is built for, and not run" if target in target_names() else "is not known"
            raise OneopError(f"--target {target} {problem}. Choose one or more of {', '.join(known)}.")
    return [column for column in there if not targets or column.target in targets or column.name in targets]


def _plans(operators: Sequence["Operator"], options: Options) -> list[Plan]:
    definitions = [operator.definition for operator in operators]
    calls.require_dtype(options.dtype)
    calls.require_words(definitions, options.attributes, options.absent)
    sizes.require_known(definitions, options.given)
    plans = []
    for operator in operators:
        constraints = constraints_of(operator)
        values = _attributes_of_example(operator, constraints)
        plans.append(calls.plan_of(operator, constraints, options.dtype, options.attributes, options.absent, values))
    return plans


def _attributes_of_example(operator: "Operator", constraints: Constraints) -> dict[str, Any]:
    """Those of the first example; none where there is no example. Raises DefinitionError where it fails."""
    example = next(cases_of(operator, constraints), None)
    return example.attributes if example is not None else {}


class _Steps:
    """Counts measurements for the progress bar."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._done, self.total = progress, 0, 0

    def next(self, what: str) -> None:
        if self._progress is not None:
            self._progress(what, self._done, self.total)
        self._done += 1


class _Operator:
    """The measurements of one operator."""

    def __init__(
        self, plan: Plan, chosen: Sequence[Column], threads: Sequence[int], options: Options, steps: _Steps
    ) -> None:
        self.plan, self.threads, self.options, self.steps = plan, threads, options, steps
        self.passes: tuple[Pass, ...] = (FORWARD, BACKWARD) if options.backward else (FORWARD,)
        found = [(column, _missing(column, plan)) for column in chosen]
        self.columns = [column for column, missing in found if missing is None]
        self.missing = {column.name: missing for column, missing in found if missing is not None}
        self.rows: list[Row] = []
        self.work: dict[tuple[str, Pass], Work] = {}
        self.notes = dict.fromkeys(plan.notes)

    @property
    def count(self) -> int:
        return len(self.threads) * len(self.columns)

    def measure(self, points: Sequence[Size]) -> Measured:
        for point in points:
            self._measure_at(point)
        dtypes = zip(self.plan.definition.elements, self.plan.dtypes, strict=True)
        return Measured(
            self.plan.definition.name,
            {element.name: dtype.name for element, dtype in dtypes},
            self.plan.attributes,
            sorted(self.plan.absent),
            [str(point) for point in points],
            self.rows,
            self.work,
            self.missing,
            tuple(self.notes),
        )

    def _measure_at(self, point: Size) -> None:
        case = calls.make_call(self.plan, point)
        try:
            oracle = Oracle(self.plan, case, self.options.backward)
        except OneopError as error:
            self._fail_all(str(point), str(error))
            return
        for kind, work in oracle.work.items():
            self.work[str(point), kind] = work
        self.notes.update(dict.fromkeys(oracle.notes))
        with columns.files_of(self.plan, case) as files:
            for threads in self.threads:
                with _torch_threads(threads):
                    for column in self.columns:
                        self.steps.next(f"{self.plan.definition.name}, {point}, {_threads(threads)}: {column.title}")
                        self.rows += self._measure_column(column, oracle, files, threads, str(point))

    def _fail_all(self, point: str, reason: str) -> None:
        for threads in self.threads:
            for column in self.columns:
                self.steps.next(f"{self.plan.definition.name}, {point}")
                self.rows.append(Row(column.name, column.title, point, threads, FORWARD, "failed", reason=reason))

    def _measure_column(self, column: Column, oracle: "Oracle", files: Files, threads: int, point: str) -> list[Row]:
        def row(kind: Pass, status: Status, timing: Timing | None = None, reason: str | None = None) -> Row:
            return Row(column.name, column.title, point, threads, kind, status, timing, reason)

        try:
            prepared = column.prepare(self.plan, oracle.gradients, files, threads)
        except Exception as error:
            return [row(FORWARD, "failed", reason=_said(error))]
        rows = []
        for kind, run, values in prepared.passes():
            if kind not in self.passes:
                continue
            try:
                complaint = oracle.expected[kind].complaint(values(run()))
                if complaint is None:
                    rows.append(row(kind, "measured", time_call(run, threads, self.options.seconds)))
                else:
                    rows.append(row(kind, "wrong", reason=complaint))
            except Exception as error:
                rows.append(row(kind, "failed", reason=_said(error)))
        return rows


def _missing(column: Column, plan: Plan) -> Missing | None:
    lacking = column.lacking(plan)
    if lacking is not None:
        return Missing(column.title, lacking, by_definition=True)
    reason = column.missing(plan)
    return None if reason is None else Missing(column.title, reason)


class Oracle:
    """What one call has to give in each pass, and what it has to do; from the reference, where there is one.

    Raises OneopError where the reference itself fails, or gives what its definition does not say.
    """

    def __init__(self, plan: Plan, case: Case, backward: bool) -> None:
        self.plan, self.case = plan, case
        self.notes: list[str] = []
        self.expected: dict[Pass, Expected] = {}
        self.work: dict[Pass, Work] = {}
        if plan.definition.native_only:
            self.notes.append(
                "native_only=True: there is no reference, so columns are compared with the kernel in PyTorch, and"
                " floating operations are not counted."
            )
        with self._explained():
            outputs = self._forward()
            unfitting = self._unfitting()
        if unfitting is not None:
            raise unfitting
        with self._explained():
            self.gradients = self._gradients() if backward else Gradients(case, case.inputs)
            if self.gradients.outputs:
                self._backward(outputs)
        if self.gradients.reason is not None:
            self.notes.append(self.gradients.reason)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever the user's own function raises
            what = "the kernel" if self.plan.definition.native_only else "the reference"
            said = f"{what} fails on inputs made from the definition: {_said(error)}"
            if not _is_memory(error):
                stop = "" if said.endswith((".", "!", "?")) else "."
                said += (
                    f"{stop} If values have to be in a range, say so at the definition:"
                    ' @op.example(index="0 <= index < n").'
                )
            raise OneopError(said) from error

    def _unfitting(self) -> CallError | None:
        """Where the reference gives what its definition does not say: an operator's own call checks that."""
        if self.plan.definition.native_only:
            return None
        try:
            with torch.no_grad():
                run_reference(self.plan.operator, self.case.inputs, self.plan.attributes)
        except CallError as error:
            return error
        return None

    def _run(self, inputs: Sequence[Any]) -> list[Tensor]:
        if self.plan.definition.native_only:
            return columns.values_of(self.plan.operator(*inputs, **self.plan.attributes))
        return columns.call_reference(self.plan, inputs)

    def _forward(self) -> list[Tensor]:
        with torch.no_grad():
            outputs = self._run(self.case.inputs)
            labels = [item.name for item in self.plan.definition.outputs]
            self.expected[FORWARD] = expect(self._run, self.case.inputs, labels)
        moved = [*self.case.tensors, *outputs]
        self.work[FORWARD] = self._work(moved, lambda: self._run(self.case.inputs))
        return outputs

    def _gradients(self) -> Gradients:
        leaves = [
            tensor.clone().requires_grad_() if tensor.dtype.is_floating_point else tensor
            for tensor in self.case.tensors
        ]
        inputs = rebuild(self.case.inputs, leaves)
        outputs = self._run(inputs)
        chosen = tuple(index for index, output in enumerate(outputs) if output.requires_grad)
        if not chosen:
            return Gradients(
                self.case, inputs, reason="No output has a gradient for these inputs, so only forward is measured."
            )
        generator = torch.Generator().manual_seed(1)
        given = [torch.randn(outputs[index].shape, generator=generator).to(outputs[index].dtype) for index in chosen]
        return Gradients(self.case, inputs, chosen, tuple(given))

    def _backward(self, outputs: Sequence[Tensor]) -> None:
        gradients = self.gradients

        def run(inputs: Sequence[Any]) -> list[Tensor]:
            leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in flat(inputs)]
            rebuilt = rebuild(inputs, leaves)
            return columns.gradients_of(self._run(rebuilt), replace(gradients, inputs=rebuilt))

        found = run(self.case.inputs)
        self.expected[BACKWARD] = expect(run, self.case.inputs, gradients.labels)
        moved = [*self.case.tensors, *outputs, *gradients.given, *found]
        self.work[BACKWARD] = self._work(moved, lambda: run(self.case.inputs))

    def _work(self, moved: Sequence[Tensor], run: Callable[[], Any]) -> Work:
        if self.plan.definition.native_only:
            return Work(counting.bytes_of(moved), None)
        return Work(counting.bytes_of(moved), *counting.count(run))


def _complaints(measured: Measured, chosen: Sequence[Column], targets: Sequence[str]) -> Iterator[str]:
    """What was asked for by name and is missing; what is wrong; what failed."""
    for target in targets:
        own = [column for column in chosen if target in (column.target, column.name)]
        gone = [measured.missing[column.name] for column in own if column.name in measured.missing]
        whole = len(gone) == len(own)
        reasons = [f"{item.title}: {item.reason}" for item in gone if whole or not item.by_definition]
        if reasons:
            how = "cannot be measured here" if whole else "can be measured only in part here"
            yield f"{measured.operator}: --target {target} {how}. {' '.join(reasons)}"
    for row in measured.rows:
        if row.status in ("wrong", "failed"):
            yield (
                f"{measured.operator}: {row.title}, {row.kind}, at {row.size} with {_threads(row.threads)},"
                f" {'is wrong' if row.status == 'wrong' else 'fails'}: {row.reason}"
            )


def _said(error: BaseException) -> str:
    """An error of a runtime in one line; of ours, whole."""
    if isinstance(error, OneopError):
        return str(error)
    if _is_memory(error):
        return "there is not enough memory. Give smaller sizes with --size."
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _is_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def _threads(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _versions(operators: Sequence[Measured]) -> dict[str, str]:
    """What was measured with what, as far as it is installed."""
    names = ["oneop", "torch", *target_names()]  # most targets are called as what pip installs
    found = {"Python": platform.python_version(), "processor": _processor()}
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _processor() -> str:
    """The name of the processor, with the instructions that torch uses; the architecture where the system tells no
    name.
    """
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name} ({torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} processors)"
