"""Refuses files that no runtime should be given: functions in a circle, and weights outside of the model's folder."""

import graphlib
import os
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath

from oneop.errors import ExportError
from oneop.inspection.facts import MAIN, Identifier, OnnxFile
from oneop.inspection.reading import shown

MOST_INLINED = 10_000_000
"""What functions may amount to when their bodies stand in place of their nodes."""


def order_of(file: OnnxFile) -> tuple[Identifier, ...]:
    """The functions, each after those that it calls. Raises ExportError where they call each other in a circle, or
    stand for more nodes than a runtime could hold."""
    graph = {name: [call for call in item.calls if call in file.functions] for name, item in file.functions.items()}
    try:
        order = tuple(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        circle = [str(name) for name in error.args[1]]
        path = " -> ".join(map(shown, circle[:4])) + (f" -> ... ({len(circle) - 1} functions)" if circle[4:] else "")
        raise ExportError(
            f"{file.path}: the functions in it call each other in a circle, {path}, so that no runtime can take them "
            "apart. Export the model again."
        ) from None
    _require_bounded(file, order)
    return order


def _require_bounded(file: OnnxFile, order: tuple[Identifier, ...]) -> None:
    sizes: dict[Identifier, int] = {}
    for name in (*order, MAIN):
        function = file.main if name == MAIN else file.functions[name]
        total = function.node_count + sum(count * sizes.get(call, 0) for call, count in function.calls.items())
        sizes[name] = min(total, 10 * MOST_INLINED)
    if sizes[MAIN] > MOST_INLINED:
        raise ExportError(
            f"{file.path}: its functions call each other so often that they stand for more than {MOST_INLINED:,} nodes,"
            " and a runtime that takes them apart runs out of memory. Export the model again."
        )


def notes_of_weights(file: OnnxFile) -> list[str]:
    """What is to be said of the files that hold the weights; they are looked at, and never read.

    Raises ExportError where one is named that a model has no business with.
    """
    found = []
    for location, expected in file.external.items():
        path = _inside(file, location)
        try:
            status = os.stat(path)
        except OSError as error:
            found.append(f"{shown(location)}, with weights, cannot be read beside the model: {error.strerror}.")
            continue
        if not stat.S_ISREG(status.st_mode):
            raise _outside(file, location, "is no ordinary file")
        if status.st_size < expected:
            found.append(
                f"{shown(location)}, with weights, has {status.st_size:,} bytes, and the model expects {expected:,}: it"
                " belongs to another model, or was not copied whole."
            )
    return found


def _inside(file: OnnxFile, location: str) -> Path:
    parts = {*PurePosixPath(location).parts, *PureWindowsPath(location).parts}
    if PurePosixPath(location).is_absolute() or PureWindowsPath(location).anchor:
        raise _outside(file, location, "is an absolute path")
    if ".." in parts:
        raise _outside(file, location, "leads out of its folder")
    if "\0" in location:
        raise _outside(file, location, "is no path")
    path = file.path.parent / location
    real = Path(os.path.realpath(path))
    # A model may itself be a link into a store, with its weights beside it there.
    homes = {Path(os.path.realpath(file.path.parent)), Path(os.path.realpath(file.path)).parent}
    if not any(real.is_relative_to(home) for home in homes):
        raise _outside(file, location, f"is a link to {real}, outside of its folder")
    return path


def _outside(file: OnnxFile, location: str, what: str) -> ExportError:
    return ExportError(
        f"{file.path}: the weights of this model are in {shown(location)!r}, which {what}. A runtime would read a file"
        " of this machine into the model. If you trust it, copy the weights beside the model and save it with a"
        " relative path; otherwise do not load it."
    )
