"""The reliability diagram: what a model says against how often it is right.

Each bin shows its accuracy with Wilson's interval, the gap to its mean confidence shaded, and in grey where the accuracy
of a *calibrated* model would lie 95 times in 100. A gap that ends inside the grey is no evidence of anything. How many
samples a bin holds stands below it, on a logarithmic scale, for most bins of a good net are nearly empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from calgrad.checks import ArrayLike, one_of, probs_and_labels
from calgrad.metrics import Interval, NoiseFloor, ReliabilityCurve
from calgrad.metrics.binning import bin_edges, bin_index, error_of_sums, sums_of_index, top_label
from calgrad.metrics.curve import curve_of_sums
from calgrad.metrics.inference import cells_of, judge_cells
from calgrad.metrics.intervals import ece_interval
from calgrad.report.canvas import PERCENT, Shown, blank, canvas, percent_axes
from calgrad.report.smooth_curve import SmoothCurve, smooth_curve
from calgrad.report.style import BAND, COLOURS, INK, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCHEMES = {"equal-width": "right", "equal-mass": "adaptive", "smooth": ""}
OVER, UNDER = COLOURS[1], COLOURS[0]


@dataclass(frozen=True)
class Diagram(Shown):
    """The data of one reliability diagram.

    Attributes:
        curve: the bins; for the smooth variant those of the count strip.
        band: (2, bins) where a calibrated model's accuracy would lie 95 times in 100.
        error: the ECE in these bins, or the smooth ECE.
        interval: of the ECE; None for the smooth variant.
        floor: what a calibrated model would show in these bins; None for the smooth variant.
        smooth: the curve without bins, for the smooth variant.
    """

    curve: ReliabilityCurve
    band: np.ndarray
    error: float
    interval: Interval | None
    floor: NoiseFloor | None
    smooth: SmoothCurve | None = None

    def draw(self) -> Figure:
        """The picture of it."""
        return draw_reliability(self)


def diagram(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    bins: int = 15,
    scheme: str = "equal-width",
    seed: int = 0,
) -> Diagram:
    """Compute what `draw_reliability` draws.

    Args:
        probs: (N, K) probabilities, or pass `logits`.
        labels: (N,) class indices.
        logits: (N, K) logits instead of `probs`.
        bins: how many bins.
        scheme: "equal-width", "equal-mass" or "smooth".
        seed: of the noise floor and the interval.

    Example:
        >>> import torch, calgrad.plot
        >>> logits = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
        >>> data = calgrad.plot.diagram(logits=logits, labels=logits.argmax(1))
        >>> data.error > data.floor.high
        True
    """
    one_of("scheme", scheme, tuple(SCHEMES))
    checked, checked_labels = probs_and_labels(probs, labels, logits)
    return diagram_of(*top_label(checked, checked_labels), bins=bins, scheme=scheme, seed=seed)


def diagram_of(score: Tensor, hit: Tensor, *, bins: int = 15, scheme: str = "equal-width", seed: int = 0) -> Diagram:
    """The diagram of any scores in [0, 1] and whether they came true: (confidence, is_correct), or (p_k, label is k)."""
    score, hit = score.cpu(), hit.cpu()
    binning = SCHEMES[scheme] or "right"
    edges = bin_edges(score, bins=bins, binning=binning)
    index = bin_index(score, edges)
    sums = sums_of_index(index, score, hit, cells=bins)
    curve = curve_of_sums(sums, edges.double().numpy(), binning=binning)
    variance = np.bincount(index.numpy(), weights=(score * (1 - score)).double().numpy(), minlength=bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        half = 1.96 * np.sqrt(variance) / curve.count
    band = np.clip([curve.confidence - half, curve.confidence + half], 0, 1)
    if scheme == "smooth":
        smooth = smooth_curve(score, hit)
        return Diagram(curve, band, smooth.error, None, None, smooth)
    cells = cells_of(score, hit, bins=bins, binning=binning)
    floor = judge_cells(cells, seed=seed).floor
    return Diagram(curve, band, error_of_sums(sums), ece_interval(cells, seed=seed), floor)


def draw_reliability(
    data: Diagram | None = None,
    labels: ArrayLike | None = None,
    *,
    probs: ArrayLike | None = None,
    logits: ArrayLike | None = None,
    bins: int = 15,
    scheme: str = "equal-width",
    start: float = 0.0,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Draw a reliability diagram, from `diagram(...)` or straight from `logits=` (or `probs=`) and `labels`.

    Args:
        data: what `diagram` returned.
        labels: (N,) class indices, with `probs` or `logits`.
        probs: (N, K) probabilities.
        logits: (N, K) logits.
        bins: how many bins.
        scheme: "equal-width", "equal-mass" or "smooth".
        start: where both axes begin, in [0, 1): 0.9 looks closely at a net whose samples crowd near 1.
        title: above the picture.
        ax: axes to draw on; without them a new figure, with the counts in a strip of its own.

    Example:
        >>> import torch, calgrad.plot
        >>> logits = torch.randn(1000, 3)
        >>> figure = calgrad.plot.draw_reliability(logits=logits, labels=logits.argmax(1))
    """
    if data is None:
        data = diagram(probs, labels, logits=logits, bins=bins, scheme=scheme)
    with style():
        if ax is None:
            figure = blank(4.6, 5.2)
            ax, strip = figure.subplots(2, 1, sharex=True, height_ratios=[4.2, 1])
        else:
            figure, ax = canvas(ax, 4.6, 4.4)
            strip = ax.inset_axes((0.0, -0.33, 1.0, 0.17), sharex=ax)
        _draw_curve(ax, data)
        _draw_counts(strip, data.curve)
        ax.set(title=title, xlim=(PERCENT * start, PERCENT), ylim=(PERCENT * start, PERCENT))
    return figure


def draw_before_after(diagrams: Mapping[str, Diagram], *, title: str = "") -> Figure:
    """Diagrams side by side, such as {"as trained": ..., "temperature": ..., "link": ...}.

    Example:
        >>> import torch, calgrad.plot
        >>> logits, labels = 4 * torch.randn(1000, 3), torch.randint(3, (1000,))
        >>> views = {"as it is": logits, "T = 9": logits / 9}
        >>> data = {name: calgrad.plot.diagram(logits=z, labels=labels) for name, z in views.items()}
        >>> figure = calgrad.plot.draw_before_after(data)
    """
    with style():
        figure = blank(3.7 * len(diagrams), 4.4)
        axes = figure.subplots(2, len(diagrams), sharex=True, sharey="row", height_ratios=[4.2, 1], squeeze=False)
        for column, (name, data) in enumerate(diagrams.items()):
            _draw_curve(axes[0, column], data, y="is right (%)" if column == 0 else "")
            _draw_counts(axes[1, column], data.curve, y="samples" if column == 0 else "")
            axes[0, column].set_title(name)
        if title:
            figure.suptitle(title)
    return figure


# -------------------------------------------------------------------------------------------------------------- drawing


def _draw_curve(ax: Axes, data: Diagram, *, y: str = "is right (%)") -> None:
    if data.smooth is not None:
        _draw_smooth(ax, data.smooth)
    else:
        draw_bins(ax, data)
    ax.set_ylabel(y)
    # In the corner that a model of this kind leaves free: curves of the over-confident lie below the diagonal.
    x, y_at, ha, va = (0.04, 0.965, "left", "top") if _is_over(data.curve) else (0.96, 0.035, "right", "bottom")
    box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 2}
    ax.text(
        x, y_at, "\n".join(_corner(data)), ha=ha, va=va, transform=ax.transAxes, fontsize=8.5, linespacing=1.4, zorder=6, bbox=box
    )  # fmt: skip


def draw_bins(ax: Axes, data: Diagram) -> None:
    """Bins on square axes: band, gap, accuracy with interval, diagonal."""
    full = data.curve.count > 0
    left, width = PERCENT * data.curve.edges[:-1][full], PERCENT * np.diff(data.curve.edges)[full]
    says, right = PERCENT * data.curve.confidence[full], PERCENT * data.curve.accuracy[full]
    band = PERCENT * data.band[:, full]
    low, high = PERCENT * data.curve.low[full], PERCENT * data.curve.high[full]
    common: Any = {"align": "edge", "lw": 0}
    ax.bar(left, band[1] - band[0], width, band[0], color=BAND, zorder=1, label="calibrated, 95 %", **common)
    over = says > right
    for chosen, colour, hatch in ((over, OVER, "////"), (~over, UNDER, None)):
        if chosen.any():
            at = (left[chosen], (right - says)[chosen], width[chosen], says[chosen])
            bars = ax.bar(*at, color=colour, alpha=0.32, zorder=2, **common)
            for bar in bars if hatch else ():
                bar.set(hatch=hatch, edgecolor=colour)
    whiskers = np.maximum(0, [right - low, high - right])  # an end may miss the estimate by a rounding
    ax.errorbar(says, right, yerr=whiskers, fmt="o", color=INK, ms=4, elinewidth=1.2, zorder=4)
    percent_axes(ax)


def _draw_smooth(ax: Axes, curve: SmoothCurve) -> None:
    says, right, low, high, band_low, band_high = (
        PERCENT * values for values in (curve.says, curve.right, curve.low, curve.high, curve.band_low, curve.band_high)
    )
    ax.fill_between(says, band_low, band_high, color=BAND, lw=0, zorder=1)
    ax.fill_between(
        says, says, right, where=right < says, color=OVER, alpha=0.3, lw=0, hatch="////", edgecolor=OVER, zorder=2
    )
    ax.fill_between(says, says, right, where=right >= says, color=UNDER, alpha=0.3, lw=0, zorder=2)
    ax.fill_between(says, low, high, color=INK, alpha=0.18, lw=0, zorder=3)
    ax.plot(says, right, color=INK, zorder=4)
    percent_axes(ax)


def _draw_counts(ax: Axes, curve: ReliabilityCurve, *, y: str = "samples") -> None:
    width = PERCENT * np.diff(curve.edges)
    ax.bar(PERCENT * curve.edges[:-1], curve.count, width, align="edge", color="#9AA0A6", edgecolor="white", lw=0.4)
    ax.set_yscale("log")
    ax.set(xlabel="the model says (%)", ylabel=y, ylim=(0.8, max(10, 2 * int(curve.count.max()))))
    ax.grid(axis="x", visible=False)


def _is_over(curve: ReliabilityCurve) -> bool:
    return bool(np.nansum(curve.count * curve.gap) >= 0)


def _corner(data: Diagram) -> list[str]:
    if data.smooth is not None:
        return [f"smooth ECE {PERCENT * data.error:.2f} %"]
    lines = [f"ECE {PERCENT * data.error:.2f} %"]
    if data.interval is not None:
        lines.append(f"95 %: {PERCENT * data.interval.low:.2f} to {PERCENT * data.interval.high:.2f}")
    if data.floor is not None:
        lines.append(f"calibrated: {PERCENT * data.floor.mean:.2f}, up to {PERCENT * data.floor.high:.2f}")
    return lines
