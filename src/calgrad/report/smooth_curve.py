"""A reliability curve without bins: accuracy and confidence averaged under a sliding Gaussian.

At each centre the samples nearby are weighted by a Gaussian that is reflected at 0 and 1, and the weighted accuracy is
drawn against the weighted confidence. (Not against the centre: nets crowd near 1, and there the two differ.) The width
is that of the smooth ECE, which sees the error at the resolution of the error itself, kept between two and five points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from calgrad.metrics.binning import bin_index, equal_width_edges, sums_of_index
from calgrad.metrics.smooth import smooth_ece_of

FINE = 4000
POINTS = 61
NARROWEST, WIDEST = 0.02, 0.05
FEWEST = 3.0
"""Where fewer samples than this lie under the Gaussian, nothing is drawn."""


@dataclass(frozen=True)
class SmoothCurve:
    """Accuracy over confidence with 95 % pointwise intervals, and where a calibrated model's would lie.

    Attributes:
        says: (M,) rising weighted confidence.
        right: (M,) weighted accuracy.
        low: (M,) lower end of its interval.
        high: (M,) upper end.
        band_low: (M,) lower end of where a calibrated model's would lie 95 times in 100.
        band_high: (M,) upper end.
        error: the smooth ECE, or NaN where a bandwidth was given.
        bandwidth: of the Gaussian.
    """

    says: np.ndarray
    right: np.ndarray
    low: np.ndarray
    high: np.ndarray
    band_low: np.ndarray
    band_high: np.ndarray
    error: float
    bandwidth: float


def smooth_curve(confidence: Tensor, is_correct: Tensor, *, bandwidth: float | None = None) -> SmoothCurve:
    """The curve of (confidence, is_correct) samples; the cost after one pass does not depend on their number.

    With a `bandwidth` of its own the smooth ECE is not looked for, and `error` is NaN.
    """
    error = smooth_ece_of(confidence, is_correct) if bandwidth is None else float("nan")
    bandwidth = min(max(error, NARROWEST), WIDEST) if bandwidth is None else bandwidth
    index = bin_index(confidence, equal_width_edges(FINE, dtype=confidence.dtype, device=confidence.device))
    sums = sums_of_index(index, confidence, is_correct, cells=FINE)
    full = (sums.count > 0).cpu().numpy()
    count, summed, correct = (x.cpu().numpy()[full] for x in (sums.count, sums.confidence, sums.correct))
    at = summed / count

    centres = np.linspace(at.min(), at.max(), POINTS)
    kernel = sum(np.exp(-0.5 * ((centres[:, None] - image) / bandwidth) ** 2) for image in (at, -at, 2 - at))
    mass = kernel @ count
    effective = mass**2 / (kernel**2 @ count)
    says, right = kernel @ summed / mass, kernel @ correct / mass
    # Agresti and Coull's two added successes and failures keep the interval alive where all are right.
    shrunk = (right * effective + 2) / (effective + 4)
    half = 1.96 * np.sqrt(shrunk * (1 - shrunk) / (effective + 4))
    noise = 1.96 * np.sqrt(kernel**2 @ (count * at * (1 - at))) / mass
    keep = effective >= min(FEWEST, effective.max())

    def drawn(curve: np.ndarray) -> np.ndarray:
        return np.clip(curve, 0, 1)[keep]

    return SmoothCurve(
        says=drawn(says),
        right=drawn(right),
        # The interval is centred a little off the estimate; it must hold it.
        low=drawn(np.minimum(shrunk - half, right)),
        high=drawn(np.maximum(shrunk + half, right)),
        band_low=drawn(says - noise),
        band_high=drawn(says + noise),
        error=error,
        bandwidth=bandwidth,
    )
