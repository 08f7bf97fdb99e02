"""One style for every picture: legible in print and on a projector, and to the colour-blind.

The colours are Okabe and Ito's; a picture never tells two things apart by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000"]
MARKERS = ["o", "s", "D", "^", "v", "P", "X", "*"]
INK = "#222222"
FAINT = "#B0B0B0"
BAND = "#DDDDDD"

_SETTINGS: dict[Any, Any] = {
    "figure.dpi": 120,
    "savefig.dpi": 200,
    "savefig.bbox": "tight",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "calgrad",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw inside this, and the picture looks like the others; the caller's own settings come back after it."""
    import matplotlib

    with matplotlib.rc_context(_SETTINGS):
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure that belongs to no window, so that drawing needs no screen and leaks nothing."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> list[Path]:
    """Write PNG and SVG beside each other; the SVG carries no date, so the same picture is the same file."""
    paths = [path.with_suffix(".png"), path.with_suffix(".svg")]
    with style():
        figure.savefig(paths[0])
        figure.savefig(paths[1], metadata={"Date": None})
    return paths
