"""The page of the reports: what a person sees in a real browser, and what text of users does there."""

import re
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from oneop.errors import OneopError
from oneop.report import Cell, Code, Figure, Table, Text, plots, write_page
from support.browser import OpenPage, browser, open_page  # noqa: F401

HOSTILE = "<img src=https://example.com/x onerror=alert(1)></script></style><script>alert(2)</script>\"'&{{ 7*7 }}"

PROPERTIES = Table(
    "Properties",
    ("property", "PyTorch, eager", "OpenVINO", "median"),
    (
        ("values", Cell("passed", "passed"), Cell("not installed: pip install openvino", "skipped"), "10"),
        ("first gradients", Cell("off by 0.5", "failed", "at [0, 3]: 1.5, and not 1.0"), Cell("-"), "9"),
        ("determinism", Cell("passed", "passed"), Cell("-"), Cell("1.2 µs", order=1.2e-6)),
        ("vmap", Cell("passed", "passed"), Cell("-"), Cell("300 ns", order=3e-7)),
    ),
    note="Compared in float64.",
)


def sections() -> list[Table | Figure | Text | Code]:
    line = plots.Line("eager", [8, 64, 512], [1e-6, 2e-6, 1e-5], [9e-7, 1.9e-6, 9e-6], [2e-6, 3e-6, 2e-5])
    errors = np.linspace(0, 1, 60).reshape(3, 4, 5)
    errors[1, 2, 3] = np.nan
    return [
        PROPERTIES,
        Figure("Times", plots.lines([line], "n", "seconds", y_unit="s")),
        Figure("Errors", plots.heat_map(errors, label="absolute error"), note="eager"),
        Text("What it means", ("A stride-0 gradient was read as contiguous.", "x" * 400)),
        Code("Reproduce", "import torch\nprint(" + "1 + " * 100 + "1)\n"),
    ]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("page") / "report.html"
    write_page(written, "demo::scaled_linear", "2 cores, torch 2.13", sections())
    return written


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360], ids=["desk", "phone"])
def test_what_a_person_sees(open_page: OpenPage, path: Path, width: int, dark: bool) -> None:  # noqa: F811
    seen = open_page(path, width=width, dark=dark)
    assert seen.console == []
    assert seen.requests == []
    assert seen.overflow == 0
    assert seen.colours() > 20
    expect(seen.page).to_have_title("demo::scaled_linear")
    for text in ("2 cores, torch 2.13", "first gradients", "Compared in float64.", "A stride-0 gradient"):
        expect(seen.page.get_by_text(text)).to_be_visible()
    assert [head.inner_text() for head in seen.page.get_by_role("heading").all()] == [
        "demo::scaled_linear",
        "Properties",
        "Times",
        "Errors",
        "What it means",
        "Reproduce",
    ]
    expect(seen.page.locator("svg")).to_have_count(2)
    expect(seen.page.locator("svg").first).to_be_visible()
    ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")


def test_the_ink_of_a_plot_is_that_of_the_page(open_page: OpenPage, path: Path) -> None:  # noqa: F811
    label = "getComputedStyle([...document.querySelectorAll('svg text')].find(e => e.textContent === 'seconds')).fill"
    assert open_page(path).page.evaluate(label) == "rgb(28, 33, 40)"
    assert open_page(path, dark=True).page.evaluate(label) == "rgb(227, 232, 238)"


def test_tables_have_heads_and_say_their_status(open_page: OpenPage, path: Path) -> None:  # noqa: F811
    page = open_page(path).page
    assert [head.inner_text() for head in page.get_by_role("columnheader").all()] == list(PROPERTIES.columns)
    assert [head.inner_text() for head in page.get_by_role("rowheader").all()] == [
        str(row[0]) for row in PROPERTIES.rows
    ]
    cells = page.get_by_role("row").nth(2).get_by_role("cell")
    assert cells.nth(0).inner_text().split() == ["failed", "off", "by", "0.5"]
    expect(page.get_by_text("at [0, 3]")).not_to_be_visible()
    page.get_by_text("off by 0.5").click()
    expect(page.get_by_text("at [0, 3]: 1.5, and not 1.0")).to_be_visible()
    assert page.get_by_role("row").nth(1).get_by_role("cell").nth(1).inner_text().startswith("skipped not installed")


def test_sorting_by_number_with_the_keyboard(open_page: OpenPage, path: Path) -> None:  # noqa: F811
    page = open_page(path).page

    def column() -> list[str]:
        return [row.get_by_role("cell").nth(2).inner_text() for row in page.get_by_role("row").all()[1:]]

    page.get_by_role("button", name="median").press("Enter")
    assert column() == ["300 ns", "1.2 µs", "9", "10"]
    expect(page.get_by_role("columnheader", name="median")).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("button", name="median").press("Enter")
    assert column() == ["1.2 µs", "300 ns", "10", "9"]


def test_filtering(open_page: OpenPage, path: Path) -> None:  # noqa: F811
    page = open_page(path).page
    page.get_by_label("Filter").fill("GRAD")
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    expect(page.get_by_text("1 of 4 rows")).to_be_visible()
    page.get_by_label("Filter").fill("")
    page.get_by_label("Show").select_option("rows with skipped")
    assert [row.inner_text() for row in page.locator("tbody tr:visible th").all()] == ["values"]
    page.get_by_label("Show").select_option("everything")
    expect(page.locator("tbody tr:visible")).to_have_count(4)


def test_on_paper_what_is_folded_is_open(open_page: OpenPage, path: Path) -> None:  # noqa: F811
    page = open_page(path).page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.get_by_text("at [0, 3]: 1.5, and not 1.0")).to_be_visible()
    expect(page.get_by_label("Filter")).not_to_be_visible()
    expect(page.get_by_role("navigation")).not_to_be_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.get_by_text("at [0, 3]: 1.5, and not 1.0")).not_to_be_visible()
    assert page.pdf().startswith(b"%PDF")


def test_text_of_users_stays_text(open_page: OpenPage, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "hostile.html"
    cell = Cell(HOSTILE, "failed", HOSTILE)
    line = plots.Line(f"_{HOSTILE} $\\frac{{", [1, 10], [1, 2])
    figure = Figure(HOSTILE, plots.lines([line], HOSTILE, "$y_$", title=HOSTILE))
    table = Table(HOSTILE, (HOSTILE, "b"), ((HOSTILE, cell),) * 5, note=HOSTILE)
    write_page(path, HOSTILE, HOSTILE, [table, figure, Text(HOSTILE, (HOSTILE,)), Code(HOSTILE, HOSTILE)])
    seen = open_page(path, width=360)
    assert seen.console == []
    assert seen.requests == []
    assert seen.overflow == 0
    expect(seen.page.locator("img")).to_have_count(0)
    assert seen.page.title() == HOSTILE
    assert seen.page.locator("code").inner_text() == HOSTILE
    # The line's name is in the legend, with nothing read as mathematics, whole.
    assert f"_{HOSTILE} $\\frac{{" in seen.page.locator("svg").text_content().replace("\u200b", "")


def test_a_page_that_does_reach_out_is_seen_to(open_page: OpenPage, tmp_path: Path) -> None:  # noqa: F811
    """The oracle of the tests above: it does notice requests, errors and pages that are too wide."""
    path = tmp_path / "bad.html"
    path.write_text(
        '<img src="http://127.0.0.1:9/x.png"><div style="width: 900px">.</div><script>throw "oops"</script>'
    )
    seen = open_page(path, width=360)
    assert seen.requests == ["http://127.0.0.1:9/x.png"]
    assert any("oops" in said for said in seen.console)
    assert seen.overflow > 500
    path.write_text("")
    assert open_page(path).colours() == 1


def test_a_script_that_got_in_would_not_run(open_page: OpenPage, path: Path, tmp_path: Path) -> None:  # noqa: F811
    changed = tmp_path / "changed.html"
    changed.write_text(path.read_text().replace("</main>", "<script>document.title = 'taken'</script></main>"))
    seen = open_page(changed)
    assert seen.page.title() == "demo::scaled_linear"
    assert any("Content Security Policy" in said for said in seen.console)


def test_without_rows() -> None:
    from oneop.report.page import render

    assert "There is nothing to show here." in render("t", "s", [replace(PROPERTIES, rows=())])


def test_a_row_of_another_length_is_a_fault() -> None:
    with pytest.raises(ValueError, match="table 't': a row has 1 cells, and 2 columns"):
        Table("t", ("a", "b"), (("1",),))


def test_a_figure_is_svg() -> None:
    with pytest.raises(ValueError, match="figure 't': the text does not start with <svg"):
        Figure("t", "<script>")


def test_written_whole_with_the_usual_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("old")
    write_page(path, "t", "s", [])
    assert path.read_text().startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]
    plain = tmp_path / "plain"
    plain.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_failed_write_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.html"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OneopError, match=r"the page cannot be written to .*a\.html: No space left on device\. Give"):
        write_page(path, "t", "s", [])
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]


def test_where_there_is_no_place_for_it(tmp_path: Path) -> None:
    with pytest.raises(OneopError, match=re.escape(f"{tmp_path} is a folder, and the page is a file. Give")):
        write_page(tmp_path, "t", "s", [])
    missing = tmp_path / "no" / "a.html"
    with pytest.raises(OneopError, match=re.escape(f"to {missing}: there is no folder {missing.parent}. Create it.")):
        write_page(missing, "t", "s", [])
