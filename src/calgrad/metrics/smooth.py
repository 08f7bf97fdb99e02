"""Smooth ECE [Blasiok23]: a calibration error without bins, with its bandwidth chosen by itself.

Spread the residual (confidence - is_correct) / n of each sample with a Gaussian of width s that is reflected at 0 and
1, and integrate the absolute value of the sum: smECE(s). It falls as s grows, and *the* smooth ECE is the s at which
smECE(s) = s: the resolution at which the error is seen equals the error.

A Gaussian reflected at both ends is a convolution on the circle of circumference 2 after mirroring, so in the cosine
series of the residuals the k-th coefficient is just multiplied by exp(-(pi k s)**2 / 2). One FFT of the residuals on a
fine grid, then a short inverse FFT a bandwidth. A coarse mesh is what goes wrong elsewhere on saturated nets, whose
confidences sit within 1e-3 of 1; here the grid has 65,536 cells and each sample is shared between its two neighbours so
that its position is kept. The remaining error is below (h / s)**2 / 8 of the value, with h = 2**-16: 3e-5 at smECE =
0.1 %.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from calgrad.checks import ArrayLike
from calgrad.metrics.rows import checked_top_label

CELLS = 2**16
NARROWEST = 1e-4
"""Bandwidths are not taken below this; there the grid's error bound is 0.3 % of the value."""


def smooth_ece(
    probs: ArrayLike | None = None, labels: ArrayLike | None = None, *, logits: ArrayLike | None = None
) -> float:
    """The smooth calibration error of the predicted class, at the bandwidth that equals it.

    Continuous in the probabilities (a bin edge can't flip it) and still right on saturated nets.

    Example:
        >>> from calgrad.metrics import smooth_ece
        >>> round(smooth_ece([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 4)  # confidence 0.9, accuracy 0.5
        0.4
    """
    return smooth_ece_of(*checked_top_label(probs, labels, logits))


def smooth_ece_of(confidence: Tensor, is_correct: Tensor) -> float:
    """`smooth_ece` of (confidence, is_correct) vectors."""
    return fixed_point(residual_grid(confidence, is_correct) / confidence.numel())


def residual_grid(confidence: Tensor, is_correct: Tensor) -> np.ndarray:
    """The summed residuals on the CELLS + 1 nodes of [0, 1]; sums of two halves of the data add up."""
    position = confidence.double().clamp(max=1.0) * CELLS
    below = position.floor().clamp_(max=CELLS - 1)
    residual = confidence.double() - is_correct.double()
    above_part = (position - below) * residual
    node = below.long()
    grid = torch.zeros(CELLS + 1, dtype=torch.float64, device=confidence.device)
    grid[:-1] += torch.bincount(node, weights=residual - above_part, minlength=CELLS)
    grid[1:] += torch.bincount(node, weights=above_part, minlength=CELLS)
    return grid.cpu().numpy()


def fixed_point(residuals: np.ndarray) -> float:
    """The s with smECE(s) = s, by bisection in log s, for mean residuals on the nodes of an even grid over [0, 1]."""
    mirrored = np.concatenate([residuals, residuals[-2:0:-1]])  # period 2: even about 0 and about 1
    mirrored[0] *= 2  # an end node is its own mirror image, the others appear twice
    mirrored[len(residuals) - 1] *= 2
    coefficients = np.fft.rfft(mirrored).real / 2
    low, high = NARROWEST, 1.0
    if (floor := smoothed_error(coefficients, low)) <= low:
        return floor
    while high / low > 1 + 1e-7:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if smoothed_error(coefficients, middle) > middle else (low, middle)
    return smoothed_error(coefficients, (low * high) ** 0.5)


def smoothed_error(coefficients: np.ndarray, bandwidth: float) -> float:
    """smECE(s): the integral over [0, 1] of the absolute smoothed residual, from its cosine coefficients."""
    highest = min(len(coefficients) - 1, int(np.ceil(9 / (np.pi * bandwidth))))  # exp(-81 / 2) is nothing
    k = np.arange(highest + 1)
    damped = coefficients[: highest + 1] * np.exp(-0.5 * (np.pi * k * bandwidth) ** 2)
    points = max(256, 2 ** int(np.ceil(np.log2(16 * highest))))  # nodes on the circle; well above the highest frequency
    curve = np.fft.irfft(damped, n=points)[: points // 2 + 1] * points
    heights = np.abs(curve)
    return float((heights.sum() - 0.5 * (heights[0] + heights[-1])) * 2 / points)
