"""The columns of the table: the ways in which PyTorch and the other runtimes run an operator."""

import contextlib
import importlib.util
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oneop.check.cases import Case, flat
from oneop.check.subject import Call, Subject
from oneop.errors import CallError, OneopError
from oneop.targets.models import ModelRunner, model_runners

PYTORCH = "pytorch"
EAGER, COMPILED, EXPORTED = "PyTorch eager", "PyTorch compiled", "PyTorch exported"


class InapplicableError(Exception):
    """The column cannot run this case, for a reason that is no fault of the operator."""


class Column:
    """One column.

    ``is_native`` says that the kernels run in this process, ``by_structure`` that something is made for each
    ``Structure`` first, ``is_exported`` that this is an exported program, ``differentiates`` that gradients can be
    asked of what a call returns, ``is_slow`` that even a new size may take a second.
    """

    title = ""
    target = PYTORCH
    is_native = True
    by_structure = False
    is_exported = False
    differentiates = True
    float32_attributes = False
    is_slow = False

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def missing(self) -> str | None:
        """Why the column cannot run here."""
        return None

    def unfit(self) -> str | None:
        """Why the column makes no sense for this operator."""
        return None

    def admits(self, case: Case) -> bool:
        """Whether the column is looked at with this case."""
        return True

    def prepare(self) -> None:
        """Builds what the calls need, before the clock runs. Raises BuildError."""

    def call(self, case: Case) -> Call:
        """What runs calls of the case's structure."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives back what was made for the structures."""


class Eager(Column):
    title = EAGER

    def call(self, case: Case) -> Call:
        operator = self.subject.operator
        return lambda inputs, attributes: operator(*inputs, **attributes)


class Dispatched(Column):
    """The operator by way of torch.ops, which lets go of Python's lock while a kernel runs."""

    title = EAGER

    def call(self, case: Case) -> Call:
        operator = self.subject.operator
        return lambda inputs, attributes: operator.torch_op(*inputs, **attributes)


class Compiled(Column):
    title = COMPILED
    by_structure = True
    is_slow = True

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._made: dict[Any, Callable[..., Any]] = {}
        self._limits = contextlib.ExitStack()

    def call(self, case: Case) -> Call:
        operator = self.subject.operator

        def run(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
            key = (tuple(_count(value) for value in inputs), repr(sorted(attributes.items())))
            if key not in self._made:
                if not self._made:
                    self._limits.enter_context(_many_recompilations())
                self._made[key] = _compiled(operator, inputs, attributes)
            return self._made[key](*flat(inputs))

        return run

    def close(self) -> None:
        if self._made:
            self._made.clear()
            torch._dynamo.reset()
        self._limits.close()


def _compiled(operator: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Callable[..., Any]:
    """A function of the tensors alone. Its code is one of its own: torch counts recompilations by code."""
    scope = {"operator": operator, "rebuild": _rebuilder(inputs), "attributes": dict(attributes)}
    exec("def call(*tensors):\n    return operator(*rebuild(tensors), **attributes)", scope)
    return torch.compile(scope["call"], dynamic=True, fullgraph=True)


def _rebuilder(inputs: Sequence[Any]) -> Callable[[Sequence[Tensor]], list[Any]]:
    counts = [_count(value) for value in inputs]

    def rebuilt(tensors: Sequence[Tensor]) -> list[Any]:
        found: list[Any] = []
        at = 0
        for count in counts:
            if count is None:
                found.append(None)
            elif count < 0:
                found.append(tensors[at])
                at += 1
            else:
                found.append(list(tensors[at : at + count]))
                at += count
        return found

    return rebuilt


def _count(value: Any) -> int | None:
    return None if value is None else len(value) if isinstance(value, list | tuple) else -1


@contextmanager
def _many_recompilations() -> Iterator[None]:
    """Sizes 0 and 1, layouts and what needs a gradient are compiled anew: more often than torch thinks healthy."""
    import torch._dynamo.config as config

    with config.patch(recompile_limit=10_000, accumulated_recompile_limit=100_000):
        yield


class Model(torch.nn.Module):
    """The operator alone, with its attributes fixed."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        from oneop import registry

        self.operator = registry.operators()[case.definition.name]
        self.rebuilt = _rebuilder(case.inputs)
        self.attributes = dict(case.attributes)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        result = self.operator(*self.rebuilt(tensors), **self.attributes)
        return tuple(flat(result if isinstance(result, tuple | list) else [result]))


@dataclass
class Programs:
    """The exported program of each structure, and the files that are written of it; shared by the columns."""

    subject: Subject
    programs: dict[Any, torch.export.ExportedProgram] = field(default_factory=dict)
    files: dict[Any, Path | OneopError] = field(default_factory=dict)
    calls: dict[Any, Case] = field(default_factory=dict)
    _folder: Path | None = None

    @property
    def folder(self) -> Path:
        """Made when the first file is: a check that ends before leaves nothing behind."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="oneop-check-"))
        return self._folder

    def typical(self, case: Case) -> Case:
        """The call that stands for those of the same structure when it is exported."""
        key = structure_key(case)
        if key not in self.calls:
            self.calls[key] = typical(self.subject, case)
        return self.calls[key]

    def program(self, case: Case) -> torch.export.ExportedProgram:
        key = structure_key(case)
        if key not in self.programs:
            self.programs[key] = _export(self.typical(case))
        return self.programs[key]

    def file(self, case: Case, fallback: Any) -> Path:
        """Raises what the export raises, again each time."""
        from oneop.targets.onnx import export

        key = (structure_key(case), fallback)
        if key not in self.files:
            path = self.folder / f"{len(self.files)}.onnx"
            # A fresh one where it has sizes of its own (`?`): torch cannot take such a program apart a second time.
            program = _export(self.typical(case)) if self.subject.unknown_sizes else self.program(case)
            names = [f"x{index}" for index, _ in enumerate(case.tensors)]
            with _quiet():
                try:
                    export(program, tuple(self.typical(case).tensors), path, fallback=fallback, input_names=names)
                except OneopError as error:
                    self.files[key] = error
                else:
                    self.files[key] = path
        found = self.files[key]
        if isinstance(found, OneopError):
            raise found
        return found

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def structure_key(case: Case) -> Any:
    return (
        tuple(_count(value) for value in case.inputs),
        tuple((tensor.dtype, tensor.ndim) for tensor in case.tensors),
        repr(sorted(case.attributes.items())),
    )


def typical(subject: Subject, case: Case) -> Case:
    """A call of the same structure whose sizes, and those of its results, are 2 or more where that is possible: what
    an exporter sees must not look special, and torch.export takes a size of 1 for one that is always 1.
    """
    from oneop.check.drawing import TYPICAL, sample

    drawn = sample(subject.space.cases(TYPICAL, case.structure), 30, 0)
    large = [candidate for candidate in drawn if all(size > 1 for size in candidate.sizes.values())]
    general = (candidate for candidate in large if _gives_large_results(subject, candidate))
    return next(general, large[0] if large else case.contiguous())


def _gives_large_results(subject: Subject, case: Case) -> bool:
    if not subject.has_reference:
        return True
    results = _reference_results(subject, case)
    return results is not None and all(size > 1 for tensor in results for size in tensor.shape)


def _reference_results(subject: Subject, case: Case) -> list[Tensor] | None:
    """None where the reference refuses the call, which whoever looks at the case finds out."""
    try:
        results = subject.reference(case.inputs, case.attributes)
    except Exception:
        return None
    return [tensor for _, tensor in subject.named(results, case.inputs, case.attributes)]


def _export(given: Case) -> torch.export.ExportedProgram:
    tensors = tuple(tensor.clone() for tensor in given.tensors)
    dynamic = tuple(dict.fromkeys(range(tensor.ndim), torch.export.Dim.AUTO) for tensor in tensors)
    with _quiet():
        return torch.export.export(Model(given), tensors, dynamic_shapes=(dynamic,))


def require_sizes(program: torch.export.ExportedProgram, tensors: Sequence[Tensor]) -> None:
    """Raises InapplicableError where torch.export has fixed a size that is another one here."""
    names = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for name, tensor in zip(names, tensors, strict=True):
        stated = nodes[str(name)].meta["val"].shape
        for size, own in zip(stated, tensor.shape, strict=True):
            if isinstance(size, int) and size != own:
                raise InapplicableError(f"torch.export fixed a size at {size}")


@contextmanager
def _quiet() -> Iterator[None]:
    import logging

    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


class Exported(Column):
    title = EXPORTED
    by_structure = True
    is_exported = True

    def __init__(self, subject: Subject, programs: Programs) -> None:
        super().__init__(subject)
        self.programs = programs
        self._modules: dict[Any, Any] = {}

    def call(self, case: Case) -> Call:
        def run(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
            key = structure_key(case)
            program = self.programs.program(case)
            tensors = flat(inputs)
            require_sizes(program, tensors)
            if key not in self._modules:
                self._modules[key] = program.module()
            try:
                found = self._modules[key](*tensors)
            except AssertionError as error:
                raise InapplicableError(str(error).splitlines()[0]) from error
            return _as_outputs(self.subject, inputs, found)

        return run


class Runner(Column):
    """A runtime that runs the exported file."""

    by_structure = True
    is_exported = True
    differentiates = False
    float32_attributes = True

    def __init__(self, subject: Subject, programs: Programs, runner: ModelRunner) -> None:
        super().__init__(subject)
        self.programs = programs
        self.runner = runner
        self.title = runner.title
        self.target = runner.target
        self.is_native = runner.is_native
        self._sessions: dict[Any, Any] = {}
        self._refused: set[str] = set()

    def missing(self) -> str | None:
        return self.runner.missing()

    def unfit(self) -> str | None:
        operator = self.subject.operator
        if operator.definition.is_gradient:
            return "a gradient operator is in no exported file"
        if self.runner.is_native and not operator.has_kernels:
            return "the operator has no kernels"
        if self.runner.is_native and "cpu" not in operator.devices:
            return "the operator has kernels for CUDA only, and the file is run on the CPU"
        if not self.runner.is_native and not self.subject.has_reference:
            return "there is no reference to run (native_only=True)"
        return None

    def prepare(self) -> None:
        if self.is_native and self.runner.prepare is not None:
            self.runner.prepare([self.subject.operator])

    def admits(self, case: Case) -> bool:
        """ONNX cannot say None of an attribute whose default is another value."""
        if any(case.attributes[a.name] is None and a.default is not None for a in case.definition.attributes):
            return False
        narrowed = [dtype.name for dtype in case.structure.dtypes if dtype.name in self.runner.narrowed]
        if narrowed:
            self._refused.add(f"{narrowed[0]}: {self.runner.target} computes it in {self.runner.narrowed[narrowed[0]]}")
            return False
        if not self.runner.is_native:
            return self._can_say(case)
        return case.structure.dtypes in self.subject.operator.kernel_spec().combinations()

    def _can_say(self, case: Case) -> bool:
        """Whether the runtime's own operators can say what comes in and what has to come out."""
        narrower = self.runner.integers
        if not self.runner.loses_nan and narrower == "int64":
            return True
        results = _reference_results(self.subject, case) if self.subject.has_reference else None
        tensors = [*case.tensors, *(results or [])]
        if self.runner.loses_nan and any(bool(tensor.isnan().any()) for tensor in tensors):
            self._refused.add(f"NaN: the operators of {self.runner.target} itself do not always keep it")
            return False
        bounds = torch.iinfo(getattr(torch, narrower))
        wide = [tensor for tensor in tensors if tensor.dtype == torch.int64]
        if any(bool(((tensor > bounds.max) | (tensor < bounds.min)).any()) for tensor in wide):
            self._refused.add(f"numbers beyond {narrower}: {self.runner.target} computes int64 in it")
            return False
        return True

    @property
    def notes(self) -> list[str]:
        return sorted(self._refused)

    def call(self, case: Case) -> Call:
        return lambda inputs, attributes: self.run(case, inputs, None)

    def run(self, case: Case, inputs: Sequence[Any], threads: int | None) -> Any:
        tensors = flat(inputs)
        require_sizes(self.programs.program(case), tensors)
        session = self.session(case, threads)
        arrays = {f"x{index}": to_numpy(tensor) for index, tensor in enumerate(tensors)}
        found = [from_numpy(array) for array in session(arrays)]
        return _as_outputs(self.subject, inputs, found)

    def caller(self, case: Case, path: Path) -> Call:
        """A call with a session of its own: not every runtime lets callers share one."""
        operators = [self.subject.operator] if self.runner.is_native else []
        opened = self.runner.open(path, operators, 1)

        def run(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
            arrays = {f"x{index}": to_numpy(tensor) for index, tensor in enumerate(flat(inputs))}
            return _as_outputs(self.subject, inputs, [from_numpy(array) for array in opened(arrays)])

        return run

    def file(self, case: Case) -> Path:
        """Kernels also run from a file without the function, where torch.onnx cannot write that for all sizes."""
        try:
            return self.programs.file(case, self.runner.fallback)
        except OneopError as error:
            if not self.is_native:
                raise
            self._refused.add(f"the function in the file, which the kernels do without: {error}")
            return self.programs.file(case, "none")

    def session(self, case: Case, threads: int | None) -> Any:
        key = (structure_key(case), threads)
        if key not in self._sessions:
            path = self.file(case)
            operators = [self.subject.operator] if self.runner.is_native else []
            try:
                self._sessions[key] = self.runner.open(path, operators, threads)
            except OneopError as error:
                if self._lacks_dtype(case):
                    self._refused.add(f"{_dtypes(case)}: {error}")
                    raise InapplicableError(str(error)) from error
                raise
        return self._sessions[key]

    def _lacks_dtype(self, case: Case) -> bool:
        """A runtime need not have every dtype for the nodes of a reference's body; float32 it has."""
        floating = {str(t.dtype).removeprefix("torch.") for t in case.tensors if t.dtype.is_floating_point}
        return not self.runner.is_native and bool(floating - {"float32"})

    def close(self) -> None:
        self._sessions.clear()


def _dtypes(case: Case) -> str:
    return ", ".join(dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in case.tensors))


def _as_outputs(subject: Subject, inputs: Sequence[Any], found: Sequence[Any]) -> Any:
    """The flat results as an operator gives them: a list in the place of each output that mirrors a variadic input."""
    sources = {item.name: value for item, value in zip(subject.definition.inputs, inputs, strict=True)}
    rest = list(found)
    if len(rest) < len(subject.definition.outputs):
        raise CallError(f"{len(rest)} results came back; there are {len(subject.definition.outputs)} outputs")
    values: list[Any] = []
    for item in subject.definition.outputs:
        source = sources.get(item.mirrors or "")
        if isinstance(source, list | tuple):
            values.append([rest.pop(0) for _ in source])
        else:
            values.append(rest.pop(0))
    return values[0] if len(values) == 1 else tuple(values)


def to_numpy(tensor: Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.detach().contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.detach().contiguous().numpy()


def from_numpy(array: Any) -> Tensor:
    import numpy as np

    array = np.asarray(array)
    if str(array.dtype) == "bfloat16":
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def columns_of(subject: Subject) -> tuple[list[Column], Programs]:
    """Every column of this machine, in the table's order."""
    programs = Programs(subject)
    found: list[Column] = [Eager(subject), Compiled(subject), Exported(subject, programs)]
    if importlib.util.find_spec("onnx") is not None:
        found.extend(Runner(subject, programs, runner) for runner in model_runners())
    return found, programs
