"""Equal-mass bins in one pass and constant memory, with a bound on what that costs.

Equal-mass edges are order statistics, so the exact adaptive ECE needs every confidence. The sketch keeps a fine
histogram instead: cells whose width shrinks with the distance u = 1 - confidence, 2**resolution to each halving of u,
because that is where the confidences of a trained net lie. Its index is read off the bits of u. In float32 each of the
values nearest to 1 (u < 2**(resolution - 24)) has a cell of its own and nothing is lost there.

An edge cuts through one cell; the sketch gives the whole cell to the bin below. At most the samples of that cell that
lie above the edge's rank are in the wrong bin, so the error is bounded by what they can contribute: a correct sample at
most u, a wrong one at most its confidence. `equal_mass_sums` returns that bound, which holds for every input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calgrad.metrics.binning import BinSums

RESOLUTION = 10
_MANTISSA = 52
_SMALLEST = 1023 - 53
"""The exponent bits of 2**-53, the smallest distance from 1 that float64 can hold below 1."""
SPACING = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
"""Confidences in [1/2, 1] are whole multiples of this."""


def cells(resolution: int = RESOLUTION) -> int:
    """How many cells a sketch has: 54,274 at the default resolution."""
    return (53 << resolution) + 2


def cell_index(confidence: Tensor, resolution: int = RESOLUTION) -> Tensor:
    """The cell of each confidence, int64, ascending with it; what is no number from 0 to 1 lands in an end cell."""
    distance = (1 - confidence.double()).clamp(0, 1).nan_to_num(1)
    first = (_SMALLEST << resolution) - 1
    from_the_top = ((distance.view(torch.int64) >> (_MANTISSA - resolution)) - first).clamp_(0, cells(resolution) - 1)
    return cells(resolution) - 1 - from_the_top


def distances(resolution: int = RESOLUTION) -> tuple[Tensor, Tensor]:
    """The least and the largest distance from 1 that each cell can hold, in the order of `cell_index`, on the CPU."""
    first = (_SMALLEST << resolution) - 1
    bits = (torch.arange(1, cells(resolution) + 1) + first) << (_MANTISSA - resolution)
    starts = torch.cat([torch.zeros(1, dtype=torch.float64), bits.view(torch.float64)]).clamp_(max=1)
    return starts[:-1].flip(0), starts[1:].flip(0)


def equal_mass_sums(
    count: Tensor, confidence: Tensor, correct: Tensor, *, bins: int = 15, dtype: torch.dtype = torch.float64
) -> tuple[BinSums, float]:
    """The equal-mass bins that a sketch's cells make, and how far their l1 error can lie from the exact adaptive ECE.

    Args:
        count: (cells,) int64 number of samples in each cell.
        confidence: (cells,) float64 summed confidence.
        correct: (cells,) int64 number of samples that are right.
        bins: How many bins of equal mass.
        dtype: The dtype that all confidences had; float64 where they differed. It only tightens the bound.
    """
    count, confidence, correct = count.cpu(), confidence.cpu().double(), correct.cpu()
    filled = count.nonzero().squeeze(1)
    nearest, farthest = (bound[filled] for bound in distances(_resolution_of(count)))
    count, confidence, correct = count[filled], confidence[filled], correct[filled]
    upto, total = count.cumsum(0), int(count.sum())
    rank = (torch.arange(1, bins, dtype=torch.float64) * (total / bins)).clamp(max=total - 1)
    below = rank.floor().long()
    cut = torch.searchsorted(upto, below, right=True)

    edges = torch.cat([torch.tensor([-1]), cut, torch.tensor([len(filled) - 1])])
    sums = [torch.cat([torch.zeros(1, dtype=torch.float64), part.double().cumsum(0)])[edges + 1].diff() for part in
            (count, confidence, correct)]  # fmt: skip

    def reach(cell: Tensor, most: Tensor) -> Tensor:
        """How far moving up to `most` samples of each cell into other bins can move the sum of the bins' gaps."""
        right = torch.minimum(correct[cell], most) * farthest[cell]
        wrong = torch.minimum(count[cell] - correct[cell], most) * (1 - nearest[cell])
        return torch.maximum(right, wrong) + right + wrong

    # Several edges may cut one cell: its samples are moved once, as many as the first of these edges leaves above it.
    distinct, which = cut.unique(return_inverse=True)
    left = torch.zeros_like(distinct).scatter_reduce(0, which, upto[cut] - below - 1, "amax")
    left[(farthest - nearest)[distinct] <= SPACING[dtype]] = 0  # such a cell holds one value; no edge divides equals
    bound = reach(distinct, left).sum()
    # An edge between two cells is rounded to the dtype of the confidences and may so meet the lowest of the upper cell.
    above = (cut + 1).clamp(max=len(filled) - 1)
    from_above = (1 - (rank - below)) * (nearest[cut] - farthest[above])
    rounds_up = (upto[cut] == below + 1) & (rank > below) & (from_above <= SPACING[torch.float32])
    bound = bound + reach(above, count[above])[rounds_up].sum()
    return BinSums(sums[0], sums[1], sums[2], total), float(bound / max(total, 1))


def _resolution_of(count: Tensor) -> int:
    return ((len(count) - 2) // 53).bit_length() - 1
