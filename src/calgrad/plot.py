"""Pictures for papers and notebooks: compute first, draw second.

Each `draw_...` takes what its companion computes (`diagram` for `draw_reliability`, ...) or, for convenience, `logits=`
(or `probs=`) and `labels`. It returns a matplotlib `Figure` and, where the picture has one panel, draws on `ax=` if
asked to. `save(figure, "name")` writes PNG and SVG. docs/gallery.md shows them all.
"""

from calgrad.report.classwise import class_diagrams, draw_classwise
from calgrad.report.comparison import Comparison
from calgrad.report.confidence import ConfidenceCounts, confidence_counts, draw_confidence
from calgrad.report.coverage import RiskCoverage, draw_risk_coverage, risk_coverage
from calgrad.report.gradients import GradientTrend, draw_gradients, gradient_trend, read_gradients
from calgrad.report.history import draw_history, history_of
from calgrad.report.intervals import draw_comparison
from calgrad.report.reliability import Diagram, diagram, draw_before_after, draw_reliability
from calgrad.report.simplex import SimplexField, draw_link, draw_uncertainty, link_field, uncertainty_field
from calgrad.report.smooth_curve import SmoothCurve
from calgrad.report.style import save, style

__all__ = [
    "Comparison",
    "ConfidenceCounts",
    "Diagram",
    "GradientTrend",
    "RiskCoverage",
    "SimplexField",
    "SmoothCurve",
    "class_diagrams",
    "confidence_counts",
    "diagram",
    "draw_before_after",
    "draw_classwise",
    "draw_comparison",
    "draw_confidence",
    "draw_gradients",
    "draw_history",
    "draw_link",
    "draw_reliability",
    "draw_risk_coverage",
    "draw_uncertainty",
    "gradient_trend",
    "history_of",
    "link_field",
    "read_gradients",
    "risk_coverage",
    "save",
    "style",
    "uncertainty_field",
]
