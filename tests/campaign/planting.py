"""Copies a correct operator, with a fault in it, into a folder of its own and defines it from there."""

import shutil
from pathlib import Path

import oneop
from campaign.faults import Fault
from oneop import registry

OPERATORS = Path(__file__).with_name("operators")
NAMES = tuple(sorted(path.stem for path in OPERATORS.glob("*.py")))


def correct(name: str) -> oneop.Operator:
    return registry.load_file(OPERATORS / f"{name}.py")[0]


def planted(fault: Fault, folder: Path) -> oneop.Operator:
    """The operator with its fault. Its namespace is the fault's own, so that all may live in one process."""
    for file in OPERATORS.glob(f"{fault.operator}.*"):
        shutil.copy(file, folder / file.name)
    for edit in fault.edits:
        path = folder / edit.file
        text = path.read_text()
        found = f"\n{text}".count(f"\n{edit.before}")
        assert found == 1, f"{fault.title}: its lines stand {found} times in {edit.file}"
        path.write_text(text.replace(edit.before, edit.after))
    definition = folder / f"{fault.operator}.py"
    definition.write_text(definition.read_text().replace('"campaign::', f'"fault{fault.number}::'))
    return registry.load_file(definition)[0]
