"""Ten thousand samples, or a million, as some hundred numbers from which a browser redraws every reliability diagram.

A bin is a run of neighbouring cells. Take the edges of all bin counts on offer together, put each sample into the cell
between two neighbouring edges, and each bin of each count is a sum of whole cells: exactly the bins of
`calgrad.metrics.binning`, whatever the reader switches to, at a size that does not grow with the samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from calgrad.metrics.binning import BinSums, bin_edges, bin_index, sums_of_index

BIN_COUNTS = (5, 10, 15, 20, 30)
"""What the page offers; 15 is the field's."""

SCHEMES = {"width": "right", "mass": "adaptive"}
"""The page's words for the conventions of `calgrad.metrics.binning`."""


@dataclass(frozen=True)
class Cells:
    """The finest cells that all bin counts of one scheme share.

    Attributes:
        edges: (M,) ascending; cell j holds confidences in (edges[j - 1], edges[j]], cell 0 those up to edges[0].
        cuts: for each bin count b, the b + 1 positions of its edges among `edges`.
        sums: count, summed confidence, summed correctness of the M cells.
        variance: (M,) sum of c (1 - c): the variance of the number correct if the confidences were true.
    """

    edges: Tensor
    cuts: dict[int, Tensor]
    sums: BinSums
    variance: Tensor

    def bins(self, count: int) -> BinSums:
        """The bins of one count, merged from whole cells."""
        owner = bin_of_cell(self.cuts[count], len(self.edges))

        def merged(cells: Tensor) -> Tensor:
            return torch.zeros(count, dtype=torch.float64).index_add_(0, owner, cells)

        return BinSums(
            merged(self.sums.count), merged(self.sums.confidence), merged(self.sums.correct), self.sums.total
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists for the page; sums are rounded to what a pixel or a second decimal could show."""
        return {
            "edges": rounded(self.edges, 6),
            "cuts": {str(count): cuts.tolist() for count, cuts in self.cuts.items()},
            "n": [int(x) for x in self.sums.count],
            "c": rounded(self.sums.confidence, 4),
            "k": [int(x) for x in self.sums.correct],
            "v": rounded(self.variance, 4),
        }


def make_cells(confidence: Tensor, is_correct: Tensor, *, scheme: str) -> Cells:
    """Put (confidence, is_correct) samples into the cells of a scheme: "width" or "mass"."""
    confidence = confidence.detach().cpu()  # in its own dtype, which decides what lies on an edge
    by_count = {b: bin_edges(confidence, bins=b, binning=SCHEMES[scheme]) for b in BIN_COUNTS}
    edges = torch.unique(torch.cat(list(by_count.values())))
    cuts = {b: torch.searchsorted(edges, own) for b, own in by_count.items()}
    # The outermost edges are not boundaries of a bin: what lies beyond belongs to the first and the last one.
    padded = torch.cat([edges.new_tensor([-1.0]), edges[:-1], edges.new_tensor([2.0])])
    index = bin_index(confidence, padded)
    sums = sums_of_index(index, confidence, is_correct.cpu(), cells=len(edges))
    variance = torch.bincount(index, weights=(confidence * (1 - confidence)).double(), minlength=len(edges))
    return Cells(edges, cuts, sums, variance)


def bin_of_cell(cuts: Tensor, cells: int) -> Tensor:
    """The bin that each cell belongs to: the first whose upper edge is not below the cell's."""
    return torch.searchsorted(cuts[1:].contiguous(), torch.arange(cells)).clamp(max=len(cuts) - 2)


def rounded(values: Tensor, digits: int) -> list[float]:
    """Floats with at most so many decimals, which JSON then writes short."""
    return [round(x, digits) for x in values.tolist()]
