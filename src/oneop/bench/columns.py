"""What is measured beside each other: the reference, eager and compiled, the kernel, and what runs model files."""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oneop.bench.arrays import array_of, tensor_of
from oneop.bench.calls import Plan
from oneop.bench.results import BACKWARD, FORWARD, Pass
from oneop.check.cases import Case, flat, rebuild
from oneop.errors import BuildError, ExportError
from oneop.targets.models import ModelRunner, model_runners

Run = Callable[[], Any]


@dataclass(frozen=True)
class Prepared:
    """A column that is ready for one call: what is timed, and how its results become tensors."""

    forward: Run
    backward: Run | None
    values: Callable[[Any], list[Tensor]]

    def passes(self) -> "Iterator[tuple[Pass, Run, Callable[[Any], list[Tensor]]]]":
        yield FORWARD, self.forward, self.values
        if self.backward is not None:
            yield BACKWARD, self.backward, list


@dataclass(frozen=True)
class Column:
    """One way to compute an operator.

    ``name`` is what ``--target`` takes beside ``target``, which several columns share. ``lacking`` says why an operator
    has no such column at all, ``missing`` why it cannot be had here, for a plan; None where it can. ``prepare`` gets a
    call ready with so many threads.
    """

    name: str
    target: str
    title: str
    lacking: Callable[[Plan], str | None]
    missing: Callable[[Plan], str | None]
    prepare: "Callable[[Plan, Gradients, Files, int], Prepared]"


@dataclass(frozen=True)
class Gradients:
    """A call, and what its backward pass starts with: the gradients of those outputs that have some.

    ``inputs`` are those of the case, requiring gradients where they are floating. No ``outputs``: there is no backward
    pass, and ``reason`` says why.
    """

    case: Case
    inputs: tuple[Any, ...]
    outputs: tuple[int, ...] = ()
    given: tuple[Tensor, ...] = ()
    reason: str | None = None

    @property
    def leaves(self) -> list[Tensor]:
        return [tensor for tensor in flat(self.inputs) if tensor.requires_grad]

    @property
    def labels(self) -> list[str]:
        pairs = zip(self.case.labels, flat(self.inputs), strict=True)
        return [f"gradient of {label}" for label, tensor in pairs if tensor.requires_grad]


class Files:
    """The ONNX files of one call, written when they are asked for: one for each fallback."""

    def __init__(self, plan: Plan, case: Case, folder: Path) -> None:
        self._plan, self._case, self._folder = plan, case, folder
        self._written: dict[str, Path] = {}

    def path(self, fallback: Any) -> Path:
        if fallback not in self._written:
            import oneop

            path = self._folder / f"{fallback}.onnx"
            names = input_names(self._case)
            model = _Model(self._plan, self._case).eval()
            with warnings.catch_warnings():
                # torch's exporter warns of its own code.
                warnings.simplefilter("ignore", FutureWarning)
                warnings.simplefilter("ignore", DeprecationWarning)
                oneop.export(model, tuple(self._case.tensors), path, fallback=fallback, input_names=names)
            self._written[fallback] = path
        return self._written[fallback]


@contextmanager
def files_of(plan: Plan, case: Case) -> Iterator[Files]:
    with tempfile.TemporaryDirectory(prefix="oneop-bench-") as folder:
        yield Files(plan, case, Path(folder))


class _Model(torch.nn.Module):
    """A model that is one call of the operator, with its tensors as inputs."""

    def __init__(self, plan: Plan, case: Case) -> None:
        super().__init__()
        self.plan, self.case = plan, case

    def forward(self, *tensors: Tensor) -> Any:
        return self.plan.operator(*rebuild(self.case.inputs, tensors), **self.case.attributes)


def input_names(case: Case) -> list[str]:
    return [label.replace("[", "_").replace("]", "") for label in case.labels]


def columns() -> tuple[Column, ...]:
    """Those of PyTorch, and one for each way in which a runtime runs a model file."""
    return (
        Column("eager", "pytorch", "reference, eager", _no_reference, lambda plan: None, _prepare_eager),
        Column(
            "compiled", "pytorch", "reference, compiled", _no_reference, lambda plan: _no_compiler(), _prepare_compiled
        ),
        Column("kernel", "pytorch", "kernel in PyTorch", _no_kernel, _no_kernel_here, _prepare_kernel),
        *(_runner_column(runner) for runner in model_runners()),
    )


def values_of(returned: Any) -> list[Tensor]:
    """The tensors that an operator or its reference returned, in order."""
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def call_reference(plan: Plan, inputs: Sequence[Any]) -> list[Tensor]:
    return values_of(plan.operator.call_reference(*inputs, **plan.attributes))


def gradients_of(outputs: Sequence[Any], gradients: Gradients) -> list[Tensor]:
    """Those of the leaves, zeros where one has no part in the outputs."""
    chosen = [outputs[index] for index in gradients.outputs]
    return list(
        torch.autograd.grad(chosen, gradients.leaves, gradients.given, allow_unused=True, materialize_grads=True)
    )


def _no_reference(plan: Plan) -> str | None:
    return "the definition has native_only=True: there is no reference" if plan.definition.native_only else None


def _no_compiler() -> str | None:
    from oneop.kernels.compilers import find_compiler

    try:
        find_compiler("c++")
    except BuildError as error:
        return str(error)
    return None


def _no_kernel(plan: Plan) -> str | None:
    if not plan.operator.has_kernels:
        return "the operator has no kernels: it runs its reference"
    if "cpu" not in plan.operator.devices:
        return "the operator has kernels for CUDA only, and this runs on the CPU: there it runs its reference"
    return None


def _no_kernel_here(plan: Plan) -> str | None:
    combinations = plan.operator.kernel_spec().combinations()
    if plan.dtypes not in combinations:
        chosen = ", ".join(dtype.name for dtype in plan.dtypes)
        there = "; ".join(dict.fromkeys(", ".join(dtype.name for dtype in item) for item in combinations))
        return f"there is no kernel for {chosen}, only for {there}: add dtypes=[...] to the definition"
    return _no_compiler()


def _prepare_eager(plan: Plan, gradients: Gradients, files: Files, threads: int) -> Prepared:
    return _in_torch(plan, gradients, plan.operator.reference)


def _prepare_compiled(plan: Plan, gradients: Gradients, files: Files, threads: int) -> Prepared:
    # What was compiled before belongs to another call: torch would count it against its limit of recompilations, and
    # run the rest eagerly without an error.
    torch.compiler.reset()
    return _in_torch(plan, gradients, torch.compile(plan.operator.reference, dynamic=False))


def _prepare_kernel(plan: Plan, gradients: Gradients, files: Files, threads: int) -> Prepared:
    return _in_torch(plan, gradients, plan.operator)


def _in_torch(plan: Plan, gradients: Gradients, function: Callable[..., Any]) -> Prepared:
    case, attributes = gradients.case, plan.attributes

    def forward() -> Any:
        with torch.no_grad():
            return function(*case.inputs, **attributes)

    def backward() -> list[Tensor]:
        return gradients_of(values_of(function(*gradients.inputs, **attributes)), gradients)

    return Prepared(forward, backward if gradients.outputs else None, values_of)


def _runner_column(runner: ModelRunner) -> Column:
    def missing(plan: Plan) -> str | None:
        here = runner.missing() or _no_onnx() or _narrowed(runner, plan)
        return here or (_no_kernel_here(plan) if runner.is_native else None)

    def prepare(plan: Plan, gradients: Gradients, files: Files, threads: int) -> Prepared:
        operators = [plan.operator] if runner.is_native else []
        # A reference that does not exist cannot stand in the file, and the kernels need none there.
        fallback = "none" if plan.definition.native_only else runner.fallback
        call = runner.open(files.path(fallback), operators, threads)
        tensors = gradients.case.tensors
        feed = {name: array_of(tensor) for name, tensor in zip(input_names(gradients.case), tensors, strict=True)}
        return Prepared(lambda: call(feed), None, lambda outputs: [tensor_of(array) for array in outputs])

    name = f"{runner.target}-{'native' if runner.is_native else runner.fallback}"
    lacking = _no_kernel if runner.is_native else _no_reference
    return Column(name, runner.target, runner.title, lacking, missing, prepare)


def _narrowed(runner: ModelRunner, plan: Plan) -> str | None:
    """A time of another computation than that of the other columns would be no comparison."""
    for dtype in plan.dtypes:
        if dtype.name in runner.narrowed:
            narrow = runner.narrowed[dtype.name]
            return f"{runner.title} computes {dtype.name} in {narrow}. Compare with --dtype {narrow}."
    return None


def _no_onnx() -> str | None:
    try:
        import oneop.targets.onnx  # noqa: F401
    except ExportError as error:
        return str(error)
    return None
