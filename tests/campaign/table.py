"""The table of docs/campaign.md. `python -m campaign.table`, in tests/, prints it."""

import re

from campaign.faults import FAULTS, Edit, Fault

HEAD = ("", "fault", "in", "change", "caught by")


def table() -> str:
    rows = [HEAD, tuple("---" for _ in HEAD), *map(row, FAULTS)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows) + "\n"


def row(fault: Fault) -> tuple[str, ...]:
    option = f", `{fault.way}`" if fault.way.startswith("--") else ""
    option = f", in {fault.way.removeprefix('here, in ')}" if fault.way.startswith("here, ") else option
    changes = "<br>".join(map(_change, fault.edits))
    return str(fault.number), fault.title, ", ".join(fault.files), changes, fault.row + option


def _change(edit: Edit) -> str:
    before, after = edit.before.splitlines(), edit.after.splitlines()
    while before and after and before[0] == after[0]:
        before, after = before[1:], after[1:]
    while before and after and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    return f"{_code(before)} → {_code(after)}"


def _code(lines: list[str]) -> str:
    """Lines as code in a cell of a table, their spaces drawn together."""
    text = re.sub(r"\s+", " ", " ".join(line.rstrip("\\") for line in lines)).strip()
    return f"`{text}`".replace("|", "\\|") if text else "nothing"


if __name__ == "__main__":
    print(table(), end="")
