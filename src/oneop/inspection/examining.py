"""Puts together what `oneop inspect` says: the operators of a file, a verdict for each runtime, what does not fit."""

import functools
import importlib.util
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oneop.definition.signature import camel_case
from oneop.inspection import checking, libraries, reading
from oneop.inspection.facts import Identifier, OnnxFile, Operator
from oneop.inspection.judging import Definition, Library, Question, Runtime, Verdict, runtimes


@dataclass
class Judged:
    """One operator and what each runtime makes of it. ``is_called`` is False where no node of the graph leads to it."""

    operator: Operator
    names: tuple[str, ...]
    fingerprint: str | None
    definition: Definition | None
    has_function: bool
    is_called: bool
    verdicts: dict[str, Verdict] = field(default_factory=dict)


@dataclass(frozen=True)
class Inspection:
    """``faults`` are libraries and definitions that do not fit the file; ``notes`` what else there is to know."""

    file: OnnxFile
    runtimes: tuple[Runtime, ...]
    libraries: tuple[Library, ...]
    definitions: tuple[Definition, ...]
    operators: tuple[Judged, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def inspect(
    path: str | Path, libraries: Sequence[str | Path] = (), definitions: Sequence[str | Path] = ()
) -> Inspection:
    """What each operator outside the standard domains needs to run, in each runtime.

    Args:
        path: an ONNX file, of any origin. Weights are not read.
        libraries: libraries that ``oneop.build`` wrote, for any runtime; they are loaded, in a process of their own.
        definitions: Python files that define operators; they are imported.

    Raises ExportError where the file cannot be read or no runtime should be given it; BuildError where a library
    cannot be loaded; DefinitionError where a file defines no operator, and whatever that file raises.
    """
    file = reading.read(Path(path), standard_types())
    order = checking.order_of(file)
    notes = checking.notes_of_weights(file)
    found = runtimes()
    given = tuple(_examined(Path(item), found) for item in libraries)
    defined = tuple(definition for item in definitions for definition in definitions_in(Path(item)))
    judged = _judged(file, given, defined)
    for runtime in found:
        _judge(runtime, file, judged, order, given)
    faults = [*_faults_of_libraries(file, given, judged), *_faults_of_definitions(file, defined, judged)]
    notes += _notes(file, judged)
    return Inspection(file, found, given, defined, tuple(judged.values()), tuple(faults), tuple(notes))


@functools.cache
def standard_types() -> frozenset[bytes] | None:
    """The operators of ONNX itself, as far as the installed onnx knows them; None where there is none."""
    if importlib.util.find_spec("onnx") is None:
        return None
    import onnx.defs

    return frozenset(schema.name.encode() for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain)


def definitions_in(path: Path) -> list[Definition]:
    """The operators that a Python file defines, gradients too. Raises DefinitionError where it defines none."""
    from oneop import registry

    return [
        Definition(
            operator.definition.name,
            (operator.definition.namespace, operator.definition.onnx_name),
            operator.definition.fingerprint,
            path,
            operator.has_kernels,
            not operator.definition.native_only,
        )
        for operator in registry.load_file(path)
    ]


def _examined(path: Path, found: Sequence[Runtime]) -> Library:
    return libraries.examine(path, found)


def _judged(file: OnnxFile, given: Sequence[Library], defined: Sequence[Definition]) -> dict[Identifier, Judged]:
    called = _called(file)
    known = _KnownNames.of(file, given)
    found: dict[Identifier, Judged] = {}
    for identifier, operator in file.operators.items():
        definition = next((item for item in defined if item.identifier == identifier[:2]), None)
        names = known.names_of(identifier) if definition is None else (definition.name,)
        fingerprint = next((file.fingerprints[name] for name in names if name in file.fingerprints), None)
        has_function = identifier in file.functions
        found[identifier] = Judged(operator, names, fingerprint, definition, has_function, identifier in called)
    return found


def _called(file: OnnxFile) -> set[Identifier]:
    """What the graph leads to, through functions too."""
    found: set[Identifier] = set()
    pending = [file.main]
    while pending:
        for call in pending.pop().calls:
            if call not in found:
                found.add(call)
                if call in file.functions:
                    pending.append(file.functions[call])
    return found


@dataclass(frozen=True)
class _KnownNames:
    """What oneop may call operators. A file and a library say ``demo::scaled_linear``, a node demo::ScaledLinear.

    Sorted once: a hostile file has thousands of operators, and as many names.
    """

    by_domain: dict[str, list[str]]
    by_identifier: dict[tuple[str, str], list[str]]
    types: dict[str, set[str]]

    @classmethod
    def of(cls, file: OnnxFile, given: Sequence[Library]) -> "_KnownNames":
        known = cls({}, {}, {})
        candidates = [*file.fingerprints, *(name for library in given for name in library.fingerprints or ())]
        for name in dict.fromkeys(candidates):
            domain, _, base = name.partition("::")
            known.by_domain.setdefault(domain, []).append(name)
            known.by_identifier.setdefault((domain, camel_case(base)), []).append(name)
        for item in file.operators:
            known.types.setdefault(item.domain, set()).add(item.type)
        return known

    def names_of(self, identifier: Identifier) -> tuple[str, ...]:
        fitting = self.by_identifier.get(identifier[:2])
        if fitting:
            return tuple(fitting)
        same = self.by_domain.get(identifier.domain, [])
        # Renamed with onnx_name=: clear only where there is nothing to confuse.
        return tuple(same) if len(same) == 1 and len(self.types[identifier.domain]) == 1 else ()


def _judge(
    runtime: Runtime,
    file: OnnxFile,
    judged: dict[Identifier, Judged],
    order: Sequence[Identifier],
    given: Sequence[Library],
) -> None:
    """Functions come after those that they call: whether a body runs depends on what is in it."""
    own = tuple(library for library in given if runtime.target in library.targets)
    overloads = Counter((item.domain, item.type) for item in file.functions)
    inner_first = [
        *(name for name in order if name in judged),
        *(name for name in judged if name not in file.functions),
    ]
    rank = {name: position for position, name in enumerate(order)}
    for identifier in sorted(inner_first, key=lambda name: rank.get(name, -1)):
        item = judged[identifier]
        function = file.functions.get(identifier)
        blocked = tuple(
            str(call)
            for call in (function.calls if function else ())
            if call in judged and judged[call].verdicts[runtime.target].status in ("no", "unknown")
        )
        question = Question(
            file,
            item.operator,
            item.names,
            item.fingerprint,
            function,
            blocked,
            overloads[identifier.domain, identifier.type] > 1,
            own,
            item.definition,
        )
        item.verdicts[runtime.target] = runtime.judge(question)


def _faults_of_libraries(file: OnnxFile, given: Sequence[Library], judged: dict[Identifier, Judged]) -> list[str]:
    found = []
    for library in given:
        if not library.targets:
            found.append(
                f"{library.path} is a library for none of the runtimes here. Build one with oneop build --target."
            )
        for name, built in (library.fingerprints or {}).items():
            exported = file.fingerprints.get(name)
            if exported is not None and exported != built:
                found.append(
                    f"{library.path} is stale: it holds {name} of another definition (fingerprint {built}) than the"
                    f" file was exported from ({exported}). Build it again, or export the file again."
                )
    if given and all(library.fingerprints is not None for library in given):
        held = {name for library in given for name in library.fingerprints or ()}
        for name in _asked_for(file, judged):
            if name not in held:
                found.append(f"{name} is in none of the libraries given. Build one from the file that defines it.")
    return found


def _faults_of_definitions(
    file: OnnxFile, defined: Sequence[Definition], judged: dict[Identifier, Judged]
) -> list[str]:
    known = {item.name: item for item in defined}
    found = [
        f"{item.file} does not fit: its {item.name} is another definition (fingerprint {item.fingerprint}) than the "
        f"file was exported from ({file.fingerprints[item.name]}). Export the file again, or give the older definition."
        for item in defined
        if file.fingerprints.get(item.name, item.fingerprint) != item.fingerprint
    ]
    if defined:
        found += [
            f"{name} is in none of the definition files given. Give the file that defines it as well."
            for name in _asked_for(file, judged)
            if name not in known
        ]
    return found


def _asked_for(file: OnnxFile, judged: dict[Identifier, Judged]) -> list[str]:
    """The operators of oneop's that nodes of the file stand for."""
    names = {name for item in judged.values() for name in item.names}
    return [name for name in file.fingerprints if name in names]


def _notes(file: OnnxFile, judged: dict[Identifier, Judged]) -> list[str]:
    found = []
    described = sum(len(item.operator.nodes) for item in judged.values())
    count = sum(item.operator.count for item in judged.values())
    if described < count:
        found.append(f"{described:,} of {count:,} nodes are described.")
    called = _called(file)
    unused = [str(name) for name in file.functions if name not in called]
    if unused:
        found.append(f"No node of the graph calls {_some(unused)}.")
    missing = {name.domain for name in judged if name.domain} - set(file.opset_imports)
    if missing:
        found.append(
            f"The file imports no version of {_some(sorted(missing))}; runtimes refuse nodes of such a domain. Export"
            " the model again."
        )
    asked_for = set(_asked_for(file, judged))
    inlined = [name for name in file.fingerprints if name not in asked_for]
    if inlined:
        found.append(f'{_some(inlined)}: no node left; the reference stands in place of each (fallback="inline").')
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(reading.shown, names[:3])) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
