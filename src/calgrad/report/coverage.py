"""Which predictions to act on: the error among the most confident, as more and more are taken.

A model whose confidence ranks its mistakes last has a low curve; the area under it is `calgrad.metrics.aurc`. Calibration
does not change it, for a temperature keeps the order: it is the other half of a useful confidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from calgrad.checks import ArrayLike, probs_and_labels
from calgrad.metrics import aurc
from calgrad.metrics.binning import top_label
from calgrad.report.canvas import PERCENT, Shown, canvas
from calgrad.report.style import COLOURS, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RiskCoverage(Shown):
    """A risk-coverage curve: `risk` is the error among the most confident share `coverage` of the samples."""

    coverage: np.ndarray
    risk: np.ndarray
    aurc: float
    error: float

    def thinned(self, points: int) -> RiskCoverage:
        """The same curve at so many coverages at most, evenly spread."""
        if len(self.coverage) <= points:
            return self
        keep = np.unique(np.linspace(0, len(self.coverage) - 1, points).round().astype(int))
        return RiskCoverage(self.coverage[keep], self.risk[keep], self.aurc, self.error)

    def draw(self) -> Figure:
        """The picture of it."""
        return draw_risk_coverage(self)


def risk_coverage(
    probs: ArrayLike | None = None, labels: ArrayLike | None = None, *, logits: ArrayLike | None = None
) -> RiskCoverage:
    """The curve of one model. Samples of equal confidence enter together, so the order of the file does not matter.

    Example:
        >>> from calgrad.plot import risk_coverage
        >>> risk_coverage([[0.9, 0.1], [0.6, 0.4]], [0, 1]).risk.tolist()
        [0.0, 0.5]
    """
    checked, checked_labels = probs_and_labels(probs, labels, logits)
    area = aurc(probs, labels, logits=logits)
    return curve_of(*top_label(checked, checked_labels), area=area)


def curve_of(confidence: Tensor, is_correct: Tensor, *, area: float) -> RiskCoverage:
    """The curve of (confidence, is_correct) vectors whose AURC is known."""
    order = confidence.cpu().argsort(descending=True, stable=True)
    values, wrong = confidence.cpu()[order].numpy(), (~is_correct.cpu()[order]).numpy()
    n = len(values)
    last = np.append(np.flatnonzero(values[1:] != values[:-1]), n - 1)
    risk = np.cumsum(wrong)[last] / (last + 1)
    return RiskCoverage((last + 1) / n, risk, area, float(wrong.mean()))


def draw_risk_coverage(
    curves: RiskCoverage | Mapping[str, RiskCoverage] | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw one curve, or several by name; or pass `logits=` (or `probs=`) and `labels`.

    Example:
        >>> import torch, calgrad.plot
        >>> logits = torch.randn(500, 3)
        >>> figure = calgrad.plot.draw_risk_coverage(logits=logits, labels=logits.argmax(1))
    """
    if curves is None:
        curves = risk_coverage(probs, labels, logits=logits)
    named: dict[str, Any] = dict(curves) if isinstance(curves, Mapping) else {"": curves}
    with style():
        figure, ax = canvas(ax, 5.2, 3.6)
        for i, (name, curve) in enumerate(named.items()):
            label = f"{name} (AURC {PERCENT * curve.aurc:.2f} %)".strip()
            colour = COLOURS[i % len(COLOURS)]
            ax.plot(PERCENT * curve.coverage, PERCENT * curve.risk, color=colour, ls=LINES[i % len(LINES)], label=label)
            ax.plot([0, PERCENT], 2 * [PERCENT * curve.error], color=colour, lw=0.8, ls=":")
        ax.set(xlabel="coverage: the most confident share (%)", ylabel="error among them (%)", xlim=(0, PERCENT))
        ax.set_ylim(bottom=0)
        ax.legend(loc="upper left", bbox_to_anchor=(0.0, 0.93))
        if len(named) == 1:
            ax.annotate("random order", (2, PERCENT * next(iter(named.values())).error), (0, -4), textcoords="offset points",
                        fontsize=8, color="#555555", va="top")  # fmt: skip
    return figure


LINES = ["-", "--", "-.", ":"]
