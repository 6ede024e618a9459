"""The same file for another runtime: without its functions, with them inlined, or with functions added."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneop.errors import ExportError
from oneop.inspection import checking, reading
from oneop.inspection.examining import standard_types
from oneop.inspection.facts import Identifier, OnnxFile
from oneop.inspection.wire import BYTES, Wire
from oneop.writing import replacing

_FUNCTIONS = 25
_PIECE = 1 << 24
_LARGEST_MESSAGE = 2**31 - 1


@dataclass(frozen=True)
class Rewritten:
    """The new file, and the operators whose functions were removed, inlined or added."""

    path: Path
    operators: tuple[str, ...]


def strip(path: str | Path, output: str | Path, only: Collection[str] = ()) -> Rewritten:
    """Removes the functions of a file, so that a runtime has to take its kernel: TensorRT's parser, for one.

    Args:
        path: the file; weights in other files stay where they are.
        output: where the new one goes; it is written whole or not at all. It may be the same path.
        only: domains (``demo``) and operators (``demo::ScaledLinear``) to which this is limited.

    Raises ExportError where the file has no such function, or cannot be read or written.
    """
    file, order = _checked(path)
    target = _target(file, output)
    removed = _selected(file, order, only)
    with reading.mapped(file.path) as content, _written(target) as place, open(place, "wb") as new:
        _copy_without(Wire(content), list(file.functions), removed, new)
    return Rewritten(target, tuple(str(name) for name in file.functions if name in removed))


def inline(path: str | Path, output: str | Path, only: Collection[str] = ()) -> Rewritten:
    """Puts the body of each function in the place of the nodes that call it: for runtimes that know no functions.

    The arguments are those of ``strip``. Needs onnx and onnx_ir. Raises ExportError.
    """
    file, order = _checked(path)
    target = _target(file, output)
    chosen = _selected(file, order, only)
    from oneop.targets.onnx import inlining

    _rewrite(file, target, lambda model: inlining.inline(model, chosen))
    return Rewritten(target, tuple(str(name) for name in file.functions if name in chosen))


def add_functions(path: str | Path, definitions: Sequence[str | Path], output: str | Path) -> Rewritten:
    """Gives each operator that has none its function, from the definition's reference: for runtimes without a kernel.

    Args:
        path: a file whose nodes are those of the definitions: exported with ``fallback="none"``, or stripped.
        definitions: the Python files that define the operators.
        output: where the new file goes, as for ``strip``.

    Raises ExportError where the file was exported from another definition, has no node of these operators that lacks a
    function, or does not say the types that a function depends on.
    """
    from oneop import registry

    file, _ = _checked(path)
    target = _target(file, output)
    operators = [operator for item in definitions for operator in registry.load_file(item)]
    from oneop.targets.onnx import adding

    added = _rewrite(file, target, lambda model: adding.add_functions(model, operators, os.fspath(file.path)))
    return Rewritten(target, tuple(added))


def _checked(path: str | Path) -> tuple[OnnxFile, tuple[Identifier, ...]]:
    """The facts of a file that may be taken apart: everything that is wrong with it is said before."""
    file = reading.read(Path(path), standard_types())
    order = checking.order_of(file)
    checking.notes_of_weights(file)
    return file, order


def _selected(file: OnnxFile, order: Sequence[Identifier], only: Collection[str]) -> set[Identifier]:
    """The functions that are meant, and those that only they call."""
    if not file.functions:
        raise ExportError(f"{file.path} has no functions: there is nothing to strip or to inline.")
    for word in only:
        if not any(word in _words(name) for name in file.functions):
            known = ", ".join(reading.shown(str(name)) for name in list(file.functions)[:5])
            raise ExportError(f"{file.path} has no function of {reading.shown(word)}. It has {known}.")
    chosen = {name for name in file.functions if not only or any(word in _words(name) for word in only)}
    users: dict[Identifier, set[Identifier]] = {name: set() for name in file.functions}
    for name, function in file.functions.items():
        for call in function.calls:
            if call in users:
                users[call].add(name)
    for name in reversed(order):
        if name not in chosen and name not in file.main.calls and users[name] and users[name] <= chosen:
            chosen.add(name)
    return chosen


def _words(name: Identifier) -> tuple[str, ...]:
    return (name.domain, f"{name.domain}::{name.type}", str(name))


def _target(file: OnnxFile, output: str | Path) -> Path:
    """Where the new file goes, links followed. Weights beside the model are found by it only in the same folder."""
    target = Path(os.path.realpath(output)) if os.path.islink(output) else Path(output)
    if target.is_dir():
        raise ExportError(f"oneop inspect: {target} is a folder. Give the path of a file in it.")
    if not target.parent.is_dir():
        raise ExportError(f"oneop inspect: the folder {target.parent} does not exist. Create it, or give another path.")
    here = (os.path.realpath(file.path.parent), os.path.realpath(os.path.realpath(file.path) + "/.."))
    if file.external and os.path.realpath(target.parent) not in here:
        weights = ", ".join(reading.shown(name) for name in list(file.external)[:3])
        raise ExportError(
            f"oneop inspect: {file.path} has its weights beside it ({weights}), and would not find them from "
            f"{target.parent}. Give an --output in {file.path.parent}, and copy both from there."
        )
    return target


@contextlib.contextmanager
def _written(target: Path) -> Iterator[Path]:
    """A path beside the target that takes its place when all went well."""
    try:
        with replacing(target) as temporary:
            yield temporary
    except OSError as error:
        raise _not_written(target, error) from error


def _not_written(target: Path, error: OSError) -> ExportError:
    return ExportError(
        f"oneop inspect: {target} could not be written: {error.strerror or error}. What was there is unchanged; free"
        " the disk, or give another path."
    )


def _copy_without(wire: Wire, functions: list[Identifier], removed: set[Identifier], new: Any) -> None:
    """Fields stand one after the other: each begins where the one before it ends."""
    number_of_function = kept = before = 0
    for number, kind, _, end in wire.fields((0, len(wire))):
        if number == _FUNCTIONS and kind == BYTES:
            if functions[number_of_function] in removed:
                _copy(wire.content, kept, before, new)
                kept = end
            number_of_function += 1
        before = end
    _copy(wire.content, kept, len(wire), new)


def _copy(content: Any, begin: int, end: int, new: Any) -> None:
    for at in range(begin, end, _PIECE):
        new.write(content[at : min(at + _PIECE, end)])


def _rewrite(file: OnnxFile, target: Path, change: Callable[[Any], Any]) -> Any:
    """Parses the file without its weights, changes it, and writes it when onnx finds it sound."""
    import onnx

    size = os.path.getsize(file.path)
    if size > _LARGEST_MESSAGE:
        raise ExportError(
            f"{file.path} has {size:,} bytes, and protobuf takes a file apart up to 2 GiB. Save the model with its "
            "weights in a file beside it (onnx.save with save_as_external_data=True)."
        )
    try:
        model = onnx.load(os.fspath(file.path), load_external_data=False)
    except Exception as error:  # protobuf's own errors, by version
        raise ExportError(f"{file.path}: protobuf cannot parse it ({_first_line(error)}). Export it again.") from error
    result = change(model)
    with _written(target) as place:
        onnx.save(model, os.fspath(place))
    return result


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__
