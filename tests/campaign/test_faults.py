"""Every seeded fault is caught by the row that is there for it, and docs/campaign.md shows this very list."""

from pathlib import Path

import pytest

from campaign import asking
from campaign.faults import FAULTS, Fault
from campaign.planting import planted
from campaign.table import table

DOCS = Path(__file__).parents[2] / "docs" / "campaign.md"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.title.replace(" ", "-"))
def test_the_row_catches_the_fault(fault: Fault, tmp_path: Path) -> None:
    results = asking.ask(planted(fault, tmp_path), fault)
    failed = [result for result in results if result.status == "failed"]
    assert failed, f"{fault.title}: {fault.row} says {[(r.column, r.status, r.reason) for r in results]}"
    assert {result.property for result in failed} == {fault.row}
    for result in failed:
        assert result.finding is not None
        assert result.finding.summary


def test_there_are_many_and_each_is_another_one() -> None:
    assert len(FAULTS) >= 48
    assert len({fault.title for fault in FAULTS}) == len(FAULTS)


def test_the_documents_table_is_what_ran() -> None:
    begin, end = "<!-- campaign -->\n", "<!-- end -->"
    text = DOCS.read_text()
    assert text[text.index(begin) + len(begin) : text.index(end)] == table()
