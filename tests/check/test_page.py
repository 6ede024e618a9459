"""The report's page in a real browser: the table, the numbers, the map of the errors."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from oneop.check import page
from oneop.check.running import check
from support.browser import OpenPage, browser, open_page  # noqa: F401


@pytest.fixture(scope="module")
def path(faulty, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = ["values", "first gradient, reference", "opcheck"]
    wrong, right = (
        check(faulty(name), quick=True, seconds=3, properties=rows, columns=["PyTorch eager"], native=False)
        for name in ("unstrided", "right")
    )
    written = tmp_path_factory.mktemp("check") / "report.html"
    page.write(written, [wrong, right], "oneop check faulty.py")
    return written


@pytest.mark.parametrize("width", [1280, 400])
def test_what_a_person_sees(open_page: OpenPage, path: Path, width: int) -> None:  # noqa: F811
    seen = open_page(path, width=width)
    assert seen.console == []
    assert seen.requests == []
    assert seen.overflow == 0
    assert seen.colours() > 20
    expect(seen.page).to_have_title("oneop check faulty.py")
    expect(seen.page.get_by_text("of 6 cells failed").first).to_be_visible()
    expect(
        seen.page.get_by_text("What this usually means: The same numbers in contiguous memory").first
    ).to_be_visible()
    expect(seen.page.get_by_text("assert_property(op, 'values'").first).to_be_visible()
    assert seen.page.content().count("assert_property(op, 'values'") == 1
    heat = seen.page.locator("figure svg").first
    heat.scroll_into_view_if_needed()
    expect(heat).to_be_visible()
    box = heat.bounding_box()
    assert box is not None
    assert box["width"] > 100
