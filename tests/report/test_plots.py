"""The plots of the reports: what is drawn, and what is said where matplotlib is missing."""

import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import matplotlib.image
import numpy as np
import pytest

from oneop.report import plots
from oneop.report.plots import Bars, HeatMap, Line, Lines


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_logarithmic_ticks_are_plain_numbers_with_units() -> None:
    drawn = plots.lines([Line("a", [1, 1000], [2e-6, 3e-3])], "n", "time", y_unit="s")
    assert {"10 µs", "1 ms"} <= set(texts(drawn))
    assert {"1", "10", "100", "1000"} <= set(texts(drawn))
    assert "mathdefault" not in drawn


def test_a_narrow_logarithmic_axis_has_ticks_too() -> None:
    assert {"2 µs", "5 µs"} <= set(texts(plots.lines([Line("a", [1, 2], [1.5e-6, 6e-6])], "n", "time", y_unit="s")))


def test_labels_of_ones_own_on_the_x_axis() -> None:
    drawn = plots.lines([Line("a", [1, 100], [1, 2])], "size", "time", x_ticks={1: "n=1, k=2", 100: "n=100, k=2"})
    assert {"n=1, k=2", "n=100, k=2"} <= set(texts(drawn))


def test_bars() -> None:
    drawn = plots.bars(["epoch 1", "epoch 2"], {"data": [1, 2], "forward": [3, float("nan")]}, "time", stacked=True)
    assert {"epoch 1", "epoch 2", "data", "forward", "time"} <= set(texts(drawn))


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (1000, 3), (0, 3), (3, 0)])
def test_heat_maps_of_any_shape(shape: tuple[int, ...]) -> None:
    drawn = plots.heat_map(np.zeros(shape), label="absolute error")
    assert drawn.startswith("<svg")
    assert ("has no elements" in drawn) == (0 in shape)


def test_a_heat_map_shows_what_is_not_finite_even_where_it_is_made_smaller(tmp_path: Path) -> None:
    errors = np.zeros((1000, 1000))
    errors[700, 300] = np.nan
    errors[500, 20] = np.inf
    assert {"NaN: 1", "infinite: 1"} <= set(texts(plots.heat_map(errors)))
    plots.save_png(tmp_path / "map.png", HeatMap(errors))
    pixels = (matplotlib.image.imread(tmp_path / "map.png")[..., :3] * 255).round().astype(int)
    # Below the key, which has the colours too.
    inside = pixels[100:, :900].reshape(-1, 3)
    for special in plots.SPECIAL[:2]:
        colour = [int(special.colour[at : at + 2], 16) for at in (1, 3, 5)]
        assert (inside == colour).all(-1).any(), special.name


def test_a_heat_map_of_nothing_but_nan() -> None:
    assert "NaN: 6" in texts(plots.heat_map(np.full((2, 3), np.nan)))


def test_several_plots_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "two.png"
    plots.save_png(path, Lines([Line("a", [1, 2], [1, 2])], "n", "time"), Bars(["x"], {"a": [1]}, "time"))
    height, width, _ = matplotlib.image.imread(path).shape
    assert width > 3 * height
    assert [file.name for file in tmp_path.iterdir()] == ["two.png"]


def test_names_in_other_scripts_give_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert "注意力" in texts(plots.lines([Line("注意力", [1, 2], [1, 2])], "n", "time"))
    assert [str(warning.message) for warning in recwarn] == []


def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    before = dict(matplotlib.rcParams)
    assert "n" in texts(plots.lines([Line("a", [1, 2], [1, 2])], "n", "time"))
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib() -> None:
    script = (
        "import sys\n"
        "sys.modules['matplotlib'] = None\n"
        "from oneop.errors import OneopError\n"
        "from oneop.report import plots\n"
        "try:\n"
        "    plots.bars(['a'], {'b': [1]}, 'time')\n"
        "except OneopError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (
        done.stdout
        == "A plot needs matplotlib, which does not import in this Python (import of matplotlib halted; None in"
        " sys.modules). Run `pip install oneop[report]`, or do without the plot.\n"
    )


def test_reports_import_without_matplotlib() -> None:
    script = "import sys, oneop.report, oneop.report.plots; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
