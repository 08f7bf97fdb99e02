"""Equal-mass bins in one pass and constant memory, with a bound on what that costs.

Equal-mass edges are order statistics, so the exact adaptive ECE needs every confidence. The sketch keeps a fine
histogram instead: cells whose width shrinks with the distance u = 1 - confidence, 2**resolution to each halving of u,
because that is where the confidences of a trained net lie. Its index is read off the bits of u. In float32 each of the
values nearest to 1 (u < 2**(resolution - 24)) has a cell of its own and nothing is lost there.

An edge cuts through one cell; the sketch gives the whole cell to the bin below. At most the samples of that cell that
lie above the edge's rank are in the wrong bin, so the error is bounded by what they can contribute: a correct sample at
most u, a wrong one at most its confidence, and nothing where both bins are surely over-confident (or surely under-).
`equal_mass_sums` returns that bound, which holds for every input.
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
    nearest, farthest = (distance[filled] for distance in distances(_resolution_of(count)))
    count, confidence, correct = count[filled], confidence[filled], correct[filled]
    upto, total = count.cumsum(0), int(count.sum())
    rank = (torch.arange(1, bins, dtype=torch.float64) * (total / bins)).clamp(max=total - 1)
    below = rank.floor().long()
    cut = torch.searchsorted(upto, below, right=True)  # the cell that each inner edge cuts; it goes to the bin below
    ends = torch.cat([torch.tensor([-1]), cut, torch.tensor([len(filled) - 1])])
    ahead = torch.zeros(1, dtype=torch.float64)
    columns = [torch.cat([ahead, part.double().cumsum(0)]) for part in (count, confidence, correct)]
    in_bins = [column[ends + 1].diff() for column in columns]
    sums = BinSums(in_bins[0], in_bins[1], in_bins[2], total)

    def reach(cell: Tensor, most: Tensor) -> Tensor:
        """How far moving up to `most` samples of each cell to other bins can move the sum of the bins' gaps."""
        right = torch.minimum(correct[cell], most) * farthest[cell]
        wrong = torch.minimum(count[cell] - correct[cell], most) * (1 - nearest[cell])
        return torch.maximum(right, wrong) + right + wrong

    # Several edges may cut one cell: its samples are moved once, as many as the first of these edges leaves above it.
    cells_cut, edges = cut.unique(return_counts=True)
    last = edges.cumsum(0) - 1
    left = upto[cells_cut] - below[last - edges + 1] - 1
    left[(farthest - nearest)[cells_cut] <= SPACING[dtype]] = 0  # such a cell holds one value; no edge divides equals
    # An edge between two cells is rounded to the dtype of the confidences and may so meet the lowest of the upper cell.
    above = (cut + 1).clamp(max=len(filled) - 1)
    from_above = (1 - (rank - below)) * (nearest[cut] - farthest[above])
    rounds_up = (upto[cut] == below + 1) & (rank > below) & (from_above <= SPACING[torch.float32])
    moves = [*zip((last - edges + 1).tolist(), (last + 1).tolist(), reach(cells_cut, left).tolist())]
    moves += [(e, e + 1, far) for e, far in enumerate((reach(above, count[above]) * rounds_up).tolist())]
    return sums, _bound(sums, moves)


def _bound(sums: BinSums, moves: list[tuple[int, int, float]]) -> float:
    """How far moves between bins, each (first bin, last bin, reach), can move the l1 error.

    A move between bins that are all over-confident, or all under-confident, and stay so whatever else moves, changes
    nothing: what one gap loses, the other gains.
    """
    gap = (sums.confidence - sums.correct).tolist()
    slack = [abs(value) for value in gap]
    for first, last, far in moves:
        for i in range(first, last + 1):
            slack[i] -= far
    bound = 0.0
    for first, last, far in moves:
        signs = {(gap[i] > 0) if slack[i] > 0 else None for i in range(first, last + 1)}
        bound += 0.0 if len(signs) == 1 and None not in signs else far
    return bound / max(sums.total, 1)


def _resolution_of(count: Tensor) -> int:
    return ((len(count) - 2) // 53).bit_length() - 1
