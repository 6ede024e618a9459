"""Copies a correct operator, with a fault in it, into a folder of its own and defines it from there."""

import difflib
import re
import shutil
from pathlib import Path

import oneop
from campaign.faults import FAULTS, Fault
from oneop import registry

OPERATORS = Path(__file__).with_name("operators")
NAMES = tuple(sorted(path.stem for path in OPERATORS.glob("*.py")))


def correct(name: str) -> oneop.Operator:
    return registry.load_file(OPERATORS / f"{name}.py")[0]


def planted(fault: Fault, folder: Path) -> oneop.Operator:
    """The operator with its fault. Its namespace is the fault's own, so that all may live in one process."""
    for file in OPERATORS.glob(f"{fault.operator}.*"):
        shutil.copy(file, folder / file.name)
    for file, before, after in edits(fault):
        path = folder / file
        text = path.read_text()
        assert text.count(before) == 1, f"{fault.title}: {before!r} stands {text.count(before)} times in {file}"
        path.write_text(text.replace(before, after))
    definition = folder / f"{fault.operator}.py"
    definition.write_text(definition.read_text().replace('"campaign::', f'"{namespace(fault)}::'))
    return registry.load_file(definition)[0]


def namespace(fault: Fault) -> str:
    return f"fault{FAULTS.index(fault) + 1}"


def edits(fault: Fault) -> list[tuple[str, str, str]]:
    return [*((fault.file, before, after) for before, after in fault.edits), *fault.more]


def diff(fault: Fault) -> str:
    """The lines that change, as `diff -U0` shows them."""
    lines: list[str] = []
    for file in dict.fromkeys(name for name, _, _ in edits(fault)):
        old = (OPERATORS / file).read_text()
        new = old
        for name, before, after in edits(fault):
            new = new.replace(before, after) if name == file else new
        changed = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
        lines += [re.sub(r"\s+\\$", "", line) for line in changed if not line.startswith(("---", "+++", "@@"))]
    return "\n".join(lines)
