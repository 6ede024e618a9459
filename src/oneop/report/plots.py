"""The plots of the reports, drawn by matplotlib: as SVG for a page, or as a PNG file.

matplotlib is imported inside the functions: only those who plot need it. Labels may hold anything; nothing in them is
read as mathematics.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from oneop.errors import OneopError
from oneop.report import files

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLOURS = ("#2f7fd1", "#e07b1a", "#2e9e5b", "#c2458c", "#8a63d2", "#8d7a2b", "#1d9aa3", "#d14a3d")
"""Told apart on white and on black, and by people who see few colours together with the markers."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MOST_PIXELS = 160
"""A heat map has at most so many rows and columns; larger arrays show the worst of each block."""

_INK = "#010203"
"""Drawn in this colour, and written as ``currentColor``: a page's light and dark ink."""


@dataclass(frozen=True)
class Special:
    """Values that a heat map shows in a colour of their own, beside the scale."""

    name: str
    colour: str
    found: "Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]"


SPECIAL = (
    Special("NaN", "#d81b9c", lambda values: values != values),
    Special("infinite", "#ff3b30", lambda values: values == math.inf),
    Special("minus infinite", "#1e90ff", lambda values: values == -math.inf),
)


@dataclass(frozen=True)
class Line:
    """One series: ``y`` over ``x``, and where they are given the band from ``low`` to ``high`` around it.

    A value that is NaN or infinite leaves a gap.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class Lines:
    """Series over common axes, logarithmic where asked for.

    ``y_unit`` writes values with a prefix: "s" gives "20 µs". ``x_ticks`` writes the x axis: a label for each value.
    """

    lines: Sequence[Line]
    x_label: str
    y_label: str
    title: str = ""
    log_x: bool = True
    log_y: bool = True
    y_unit: str = ""
    x_ticks: Mapping[float, str] = field(default_factory=dict)

    def draw(self, axes: "Axes") -> None:
        from matplotlib.ticker import NullLocator

        handles = []
        for number, line in enumerate(self.lines):
            colour = COLOURS[number % len(COLOURS)]
            handles += axes.plot(line.x, line.y, color=colour, marker=MARKERS[number % len(MARKERS)], markersize=5)
            if line.low is not None and line.high is not None:
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.2, linewidth=0)
        axes.set_xscale("log" if self.log_x else "linear")
        axes.set_yscale("log" if self.log_y else "linear")
        _tick(axes.yaxis, axes.get_ylim(), self.log_y, self.y_unit)
        _tick(axes.xaxis, axes.get_xlim(), self.log_x, "")
        if self.x_ticks:
            axes.set_xticks(list(self.x_ticks), labels=list(self.x_ticks.values()), rotation=30, ha="right")
            axes.xaxis.set_minor_locator(NullLocator())
        _finish(axes, self.title, self.x_label, self.y_label)
        _legend(axes, handles, [line.name for line in self.lines])


@dataclass(frozen=True)
class Bars:
    """Groups of bars: one group a label, in each one bar of every series. ``stacked`` puts them on each other."""

    labels: Sequence[str]
    series: Mapping[str, Sequence[float]]
    y_label: str
    x_label: str = ""
    title: str = ""
    stacked: bool = False
    log_y: bool = False
    y_unit: str = ""

    def draw(self, axes: "Axes") -> None:
        import numpy as np

        places = np.arange(len(self.labels), dtype=float)
        width = 0.8 if self.stacked else 0.8 / max(len(self.series), 1)
        below = np.zeros(len(self.labels))
        handles = []
        for number, values in enumerate(self.series.values()):
            heights = np.nan_to_num(np.asarray(values, dtype=float), nan=0.0, posinf=0.0, neginf=0.0)
            shift = 0.0 if self.stacked else (number - (len(self.series) - 1) / 2) * width
            bottom = below if self.stacked else None
            colour = COLOURS[number % len(COLOURS)]
            handles.append(axes.bar(places + shift, heights, width, bottom=bottom, color=colour))
            below = below + heights
        if self.log_y:
            axes.set_yscale("log")
        _tick(axes.yaxis, axes.get_ylim(), self.log_y, self.y_unit)
        many = len(self.labels) > 6 or any(len(label) > 10 for label in self.labels)
        axes.set_xticks(places, labels=self.labels, rotation=30 if many else 0, ha="right" if many else "center")
        _finish(axes, self.title, self.x_label, self.y_label)
        # Stacks fill the axes up to their edge: the legend stands beside them.
        _legend(axes, handles, list(self.series), beside=self.stacked)


@dataclass(frozen=True)
class HeatMap:
    """The values of an array of any rank over its last two dimensions; the dimensions before those are rows too."""

    values: "np.ndarray[Any, Any]"
    title: str = ""
    label: str = ""

    def draw(self, axes: "Axes") -> None:
        import matplotlib
        import numpy as np
        from matplotlib.patches import Patch

        whole = np.asarray(self.values, dtype=float)
        if whole.size == 0:
            axes.text(0.5, 0.5, f"shape {whole.shape} has no elements", ha="center", transform=axes.transAxes)
            axes.set_axis_off()
            return
        rows = whole.reshape(-1, whole.shape[-1]) if whole.ndim else whole.reshape(1, 1)
        shown, step = _reduced(rows)
        finite = shown[np.isfinite(shown)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        scale = matplotlib.cm.ScalarMappable(
            matplotlib.colors.Normalize(low, high if high > low else low + 1.0), matplotlib.colormaps["viridis"]
        )
        colours = scale.to_rgba(np.where(np.isfinite(shown), shown, low))
        for special in SPECIAL:
            colours[special.found(shown)] = matplotlib.colors.to_rgba(special.colour)
        # Edges in elements of the array: what the axes say can be used as an index.
        extent = (-0.5, rows.shape[1] - 0.5, rows.shape[0] - 0.5, -0.5)
        axes.imshow(colours, extent=extent, aspect="auto", interpolation="none")
        assert axes.figure is not None
        axes.figure.colorbar(scale, ax=axes, label=self.label)
        blocks = f" (the largest of each {step[0]} x {step[1]} block)" if step != (1, 1) else ""
        last = f"index in the last dimension{blocks}" if whole.ndim else "a scalar"
        counts = [(special, int(special.found(whole).sum())) for special in SPECIAL]
        key = [(Patch(color=special.colour), f"{special.name}: {count}") for special, count in counts if count]
        _finish(axes, self.title, last, "row" if whole.ndim > 1 else "", pad=26 if key else 8)
        if whole.ndim < 2:
            axes.set_yticks([])
        axes.grid(False)
        if key:
            axes.legend(*zip(*key, strict=True), loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)


Plot: TypeAlias = Lines | Bars | HeatMap


def lines(lines: Sequence[Line], x_label: str, y_label: str, **options: Any) -> str:
    """``Lines(...)`` as an ``<svg>`` element."""
    return svg(Lines(lines, x_label, y_label, **options))


def bars(labels: Sequence[str], series: Mapping[str, Sequence[float]], y_label: str, **options: Any) -> str:
    """``Bars(...)`` as an ``<svg>`` element."""
    return svg(Bars(labels, series, y_label, **options))


def heat_map(values: "np.ndarray[Any, Any]", title: str = "", label: str = "") -> str:
    """``HeatMap(...)`` as an ``<svg>`` element: errors over an output, say. NaN and infinities have their own colours.

    >>> import numpy as np
    >>> from oneop.report.plots import heat_map
    >>> heat_map(np.array([[0.0, 1e-7], [float("nan"), 0.5]]), label="absolute error").startswith("<svg")
    True
    """
    return svg(HeatMap(values, title, label))


def svg(*plots: Plot) -> str:
    """The plots, two in a row, as one ``<svg>`` element, in the colour of the text around it.

    Raises OneopError where matplotlib is missing.
    """
    text = _drawn(plots, "svg").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    # Its style sheet would be one for the whole page.
    text = re.sub(r'\s*<style type="text/css">.*?</style>', "", text, count=1, flags=re.DOTALL)
    text = text.replace("<svg ", '<svg stroke-linejoin="round" ', 1)
    return text.replace(_INK, "currentColor").strip()


def save_png(path: Path, *plots: Plot) -> None:
    """Writes the plots, two in a row, as one PNG file, whole or not at all.

    Raises OneopError where matplotlib is missing or the file cannot be written.
    """
    files.write(Path(path), _drawn(plots, "png"), "the plot")


def require_matplotlib() -> None:
    """Raises OneopError where matplotlib is missing: called before the work whose result is to be plotted."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise OneopError(
            f"A plot needs matplotlib, which does not import in this Python ({error}). "
            "Run `pip install oneop[report]`, or do without the plot."
        ) from error


def _drawn(plots: Sequence[Plot], form: str) -> bytes:
    if not plots:
        raise OneopError("There is nothing to plot.")
    require_matplotlib()
    with _style(form):
        from matplotlib.figure import Figure

        across = min(len(plots), 2)
        down = math.ceil(len(plots) / across)
        figure = Figure(figsize=(7.2 * across, 4.2 * down), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False).flatten()
        for axes, plot in zip(grid, plots, strict=False):
            plot.draw(axes)
        for axes in grid[len(plots) :]:
            axes.set_axis_off()
        return _saved(figure, form)


def _saved(figure: "Figure", form: str) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Names may be in any script. The browser has its own fonts; a PNG shows boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        transparent = form == "svg"
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(buffer, format=form, dpi=144, transparent=transparent, metadata=metadata)
    return buffer.getvalue()


@contextmanager
def _style(form: str) -> Iterator[None]:
    """matplotlib's settings for one drawing; the user's own stay what they are."""
    import matplotlib

    ink = _INK if form == "svg" else "#1c2128"
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "axes.titlecolor")
    settings: Any = {
        **dict.fromkeys(inked, ink),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.unicode_minus": False,
        "font.size": 10,
        "grid.color": ink,
        "grid.alpha": 0.15,
        "legend.labelcolor": ink,
        "svg.fonttype": "none",
        "svg.hashsalt": "oneop",
        "text.parse_math": False,
        "text.usetex": False,
    }
    with matplotlib.rc_context(settings):
        yield


def _reduced(rows: "np.ndarray[Any, Any]") -> "tuple[np.ndarray[Any, Any], tuple[int, int]]":
    """At most MOST_PIXELS rows and columns, each the largest of a block: NaN where a block has one."""
    import numpy as np

    step = (math.ceil(rows.shape[0] / MOST_PIXELS), math.ceil(rows.shape[1] / MOST_PIXELS))
    down = np.maximum.reduceat(rows, range(0, rows.shape[0], step[0]), axis=0)  # maximum hands NaN on
    return np.maximum.reduceat(down, range(0, rows.shape[1], step[1]), axis=1), step


def _tick(axis: "Axis", limits: tuple[float, float], logarithmic: bool, unit: str) -> None:
    """Ticks with plain numbers: matplotlib's own for logarithmic axes are mathematics."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

    if logarithmic:
        narrow = limits[1] < 100 * limits[0]
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
        axis.set_minor_formatter(NullFormatter())
    if unit:
        axis.set_major_formatter(EngFormatter(unit))
    elif logarithmic:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _finish(axes: "Axes", title: str, x_label: str, y_label: str, pad: float = 8) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if title:
        axes.set_title(title, loc="left", fontsize=11, pad=pad)
    axes.grid(True)
    axes.set_axisbelow(True)


def _legend(axes: "Axes", handles: Sequence[Any], names: Sequence[str], beside: bool = False) -> None:
    """matplotlib leaves out names that start with an underscore: a character of no width keeps them."""
    if handles:
        shown = [f"\u200b{name}" if name.startswith("_") else name for name in names]
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1), "reverse": True} if beside else {}
        axes.legend(handles, shown, fontsize=9, frameon=False, **place)
