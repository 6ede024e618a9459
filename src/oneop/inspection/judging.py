"""What each runtime says of an operator in a file. Its rules are in its own folder, targets/<name>/inspecting.py."""

import importlib
import pkgutil
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import oneop.targets
from oneop.inspection.facts import Function, OnnxFile, Operator

Status = Literal["kernel", "function", "no", "unknown"]
WORDS: dict[Status, str] = {
    "kernel": "runs by kernel",
    "function": "runs by function body",
    "no": "does not run",
    "unknown": "not known",
}


@dataclass(frozen=True)
class Verdict:
    """``because`` says what decides; ``remedy`` what to do, and may stand beside an operator that runs."""

    status: Status
    because: str
    remedy: str | None = None


@dataclass(frozen=True)
class Library:
    """A library that was given: which runtimes it is for, and the operators in it (None: oneop did not build it).

    ``dtypes`` has for each operator the combinations of its kernels, one dtype a dtype variable.
    """

    path: Path
    targets: tuple[str, ...]
    fingerprints: dict[str, str] | None
    dtypes: dict[str, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True)
class Definition:
    """An operator of a definition file that was given."""

    name: str
    identifier: tuple[str, str]
    fingerprint: str
    file: Path
    has_kernels: bool
    has_reference: bool


@dataclass(frozen=True)
class Question:
    """All that a judge is told of one operator.

    Attributes:
        names: what oneop may call the operator, the surest first; empty where nothing connects it with oneop.
        fingerprint: of the definition that the file was exported from, where it says so.
        function: the file's own, and ``blocked`` the operators in it that do not run in this runtime.
        libraries: those given for this runtime.
        fallback_of: other functions of the same domain and type, which differ in the overload.
    """

    file: OnnxFile
    operator: Operator
    names: tuple[str, ...]
    fingerprint: str | None
    function: Function | None
    blocked: tuple[str, ...]
    overloaded: bool
    libraries: tuple[Library, ...]
    definition: Definition | None

    @property
    def title(self) -> str:
        return str(self.operator.identifier)


@dataclass(frozen=True)
class Runtime:
    """A runtime as `oneop inspect` knows it.

    Attributes:
        target: the folder in targets/, as ``oneop build --target`` takes it.
        title: how a table's head names it.
        entries: the functions of which a library for this runtime exports one.
        companions: modules that bring what such a library links, imported before it is loaded.
        judge: the rules.
    """

    target: str
    title: str
    entries: tuple[str, ...]
    companions: tuple[str, ...]
    judge: Callable[[Question], Verdict]


def runtimes() -> tuple[Runtime, ...]:
    """Those of every target that has rules, in the order of the targets' names."""
    found = []
    for item in pkgutil.iter_modules(oneop.targets.__path__):
        # Looked for as a file: to ask for a module's spec imports the folder, and with it what need not be there.
        files = (Path(folder) / item.name / "inspecting.py" for folder in oneop.targets.__path__)
        if item.ispkg and any(file.is_file() for file in files):
            found.append(importlib.import_module(f"oneop.targets.{item.name}.inspecting").RUNTIME)
    return tuple(found)


def by_library(question: Question) -> Verdict | None:
    """What the libraries given decide, in every runtime; None where they hold nothing of this operator."""
    for library in question.libraries:
        for name in question.names:
            if (library.fingerprints or {}).get(name) is None:
                continue
            return _of_library(question, library, name)
    return None


def _of_library(question: Question, library: Library, name: str) -> Verdict:
    assert library.fingerprints is not None
    built, exported = library.fingerprints[name], question.fingerprint
    if exported is not None and built != exported:
        return Verdict(
            "no",
            f"{library.path.name} is stale: it was built from another definition of {name} (fingerprint {built}) than "
            f"the file was exported from ({exported})",
            "build the library again from the definition that the file was exported from, or export the file again",
        )
    lacking = _dtype_without_kernel(question, library, name)
    if lacking is not None:
        return Verdict(
            "no",
            f"{library.path.name} has {name}, and no kernel of it for {lacking}",
            f"add {lacking} to dtypes= in the definition and build the library again, or leave the library out",
        )
    return Verdict("kernel", library.path.name)


def _dtype_without_kernel(question: Question, library: Library, name: str) -> str | None:
    """A floating or integer dtype among a node's inputs that no kernel in the library takes."""
    combinations = library.dtypes.get(name, ())
    known = {dtype for combination in combinations for dtype in combination}
    for node in question.operator.nodes:
        for value in node.inputs:
            if value.dtype is not None and known and value.dtype not in known:
                return value.dtype
    return None


def unknown_libraries(question: Question) -> str:
    """The libraries given that oneop did not build: nobody can say what is in them."""
    return ", ".join(library.path.name for library in question.libraries if library.fingerprints is None)


def how_to_build(question: Question, target: str) -> str:
    """What gives a runtime the operator's kernels."""
    definition = question.definition
    if definition is not None and definition.has_kernels:
        return f"oneop build {shlex.quote(str(definition.file))} --target {target}"
    if definition is not None:
        return f"{definition.name} in {definition.file} has no kernels: give it kernels=[...]"
    if question.fingerprint is not None:
        return f"oneop build FILE --target {target}, with the file that defines {question.names[0]}"
    return f"a library for this runtime that holds {question.title}"


def how_to_add_functions(question: Question) -> str | None:
    """The command that gives the file a function; None where the definition given has no reference."""
    if question.definition is not None:
        if not question.definition.has_reference:
            return None
        return rewritten(question, f"--add-functions {shlex.quote(str(question.definition.file))}")
    if question.fingerprint is not None:
        return (
            f"{rewritten(question, '--add-functions FILE')}, with the file that defines {question.names[0]}; or export "
            'again with fallback="function"'
        )
    return None


def rewritten(question: Question, option: str) -> str:
    """The command that rewrites this file."""
    return f"oneop inspect {shlex.quote(str(question.file.path))} {option} --output NEW.onnx"


def joined(*ways: str | None) -> str:
    """Several ways out as one sentence part."""
    return "; or ".join(way for way in ways if way)
