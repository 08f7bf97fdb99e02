"""Where a picture goes: onto the axes it is given, or onto a new figure that a notebook shows by itself."""

from __future__ import annotations

import base64
import functools
import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from calgrad.report.style import new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PERCENT = 100.0


def canvas(ax: Axes | None, width: float, height: float) -> tuple[Figure, Axes]:
    """The axes to draw on, with the figure to return."""
    if ax is not None:
        return ax.get_figure(root=True), ax  # type: ignore[return-value]
    figure = blank(width, height)
    return figure, figure.subplots()


def blank(width: float, height: float) -> Figure:
    """A new figure without axes."""
    figure = new_figure(width, height)
    # It belongs to no window, so nothing would show it at the end of a notebook cell; this does.
    figure._repr_png_ = functools.partial(_png, figure)  # type: ignore[attr-defined]
    return figure


def percent_axes(ax: Axes) -> None:
    """Square axes of two percentages, with the diagonal of the calibrated."""
    ax.plot([0, PERCENT], [0, PERCENT], ls=(0, (4, 3)), color="#555555", lw=1.1, zorder=3)
    ax.set(xlim=(0, PERCENT), ylim=(0, PERCENT))


class Shown(ABC):
    """Data of a picture that a notebook shows as the picture."""

    @abstractmethod
    def draw(self) -> Figure:
        """The picture."""

    def _repr_html_(self) -> str:
        encoded = base64.b64encode(_png(self.draw())).decode()
        return f'<img alt="{type(self).__name__}" style="max-width:100%" src="data:image/png;base64,{encoded}">'


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    with style():
        figure.savefig(out, format="png", dpi=120)
    return out.getvalue()
