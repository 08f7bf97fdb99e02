"""The paper's temperature: of 0.1, 0.2, ..., 10.0 the one with the smallest validation ECE, the first of equals.

Two observations make the search over the grid cheap without changing its answer. The prediction never depends on T,
and with d = logits minus the row's largest the confidence is 1 / sum(exp(d / T)): one sum a temperature, no softmax.
And an ECE is never smaller than |mean confidence - accuracy| (the triangle inequality), while mean confidence only
falls as T rises: so walking away from the T where the two meet, one can stop as soon as that bound exceeds the best
ECE seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from calgrad.checks import InputError, positive_int
from calgrad.metrics.binning import bin_sums, error_of_sums
from calgrad.posthoc.base import CHUNK, Fitted
from calgrad.posthoc.temperature import Temperature

GRID = tuple(step / 10 for step in range(1, 101))
"""The temperatures of the published code."""

SLACK = 1e-6
"""How far rounding of float32 confidences may move the bound that ends the walk."""


class TemperatureECE(Temperature):
    """softmax(logits / T) at the grid temperature of smallest validation ECE (15 right-closed bins).

    This repeats the published numbers. ECE is blind to much and noisy, so prefer "temperature"; a T of smaller ECE can
    have a worse NLL than T = 1, and then the report says so.

    Args:
        grid: the temperatures to try.
        bins: of the ECE.
    """

    method = "temperature-ece"

    def __init__(self, *, grid: Sequence[float] = GRID, bins: int = 15) -> None:
        super().__init__()
        positive_int("bins", bins)
        if len(grid) == 0 or not all(0 < value < float("inf") for value in grid):
            raise InputError(f"`grid` must hold positive temperatures, got {list(grid)!r}")
        self.options = {"grid": [float(value) for value in grid], "bins": bins}

    def _fit(self, logits: Tensor, labels: Tensor) -> Fitted:
        chosen = grid_temperature(logits, labels, sorted(self.options["grid"]), bins=self.options["bins"])
        return Fitted({"temperature": torch.tensor(chosen, dtype=torch.float64)})


def grid_temperature(logits: Tensor, labels: Tensor, grid: Sequence[float] = GRID, *, bins: int = 15) -> float:
    """The first temperature of an ascending `grid` with the smallest ECE of softmax(logits / T)."""
    top, prediction = logits.max(dim=1)
    is_correct = prediction == labels
    accuracy = float(is_correct.double().mean())
    rows = max(1, CHUNK // logits.shape[1])
    # A class a row: sums over few classes are then sums of long vectors.
    below = [(block.T - peak).contiguous() for block, peak in zip(logits.split(rows), top.split(rows))]

    @cache
    def measure(index: int) -> tuple[float, float]:
        """(ECE, mean confidence - accuracy) at a temperature of the grid."""
        confidence = torch.cat([(block / grid[index]).exp_().sum(dim=0) for block in below]).reciprocal_()
        sums = bin_sums(confidence, is_correct, bins=bins)
        return error_of_sums(sums), float(sums.confidence.sum()) / sums.total - accuracy

    return grid[_first_minimum(measure, len(grid))]


def _first_minimum(measure: Callable[[int], tuple[float, float]], count: int) -> int:
    """The first index of least value, given `measure(i) = (value, bias)`, value >= |bias| and bias falling with i."""
    low, high = 0, count  # the first index whose bias is not positive
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if measure(middle)[1] > 0 else (low, middle)
    best, best_index = float("inf"), 0
    for walk in (range(low, count), range(low - 1, -1, -1)):
        for index in walk:
            value, bias = measure(index)
            if (value, index) < (best, best_index):
                best, best_index = value, index
            if abs(bias) > best + SLACK:
                break
    return best_index
