"""Everything `evaluate` needs to know about a stream of predictions, in constant memory, and mergeable.

The sums of one part of the data plus the sums of the rest are the sums of the whole: `StreamSums` of many files, read
by many processes, add up to the evaluation of all of them. Intervals come from the same sums (the bootstrap of the ECE
draws counts of narrow cells, never rows), so nothing about a row is kept once it was counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calgrad.checks import InputError
from calgrad.metrics.onepass import Tally, tally
from calgrad.metrics.selective import DOUBT_CELLS, doubt_index
from calgrad.metrics.sketch import cell_index, cells
from calgrad.metrics.smooth import residual_grid


@dataclass(frozen=True)
class StreamSums:
    """The sums of a set of predictions; `+` merges two sets. About two megabytes, however many samples.

    Attributes:
        tally: what adds up exactly: scores, confidence bins, classwise bins.
        count: samples in each fine cell of the confidence, for equal-mass bins.
        confidence: their summed confidence.
        correct: how many of them are right.
        ranks: (2, cells) right and wrong samples by their doubt, for the risk-coverage curve.
        residuals: confidence minus correctness on a fine grid, for the smooth error.
    """

    tally: Tally
    count: Tensor
    confidence: Tensor
    correct: Tensor
    ranks: Tensor
    residuals: np.ndarray

    @classmethod
    def of(cls, chunk: Any, *, bins: int = 15) -> StreamSums:
        """The sums of one chunk: an object with `.logits` and `.labels`, or a (logits, labels) pair."""
        logits, labels = (chunk.logits, chunk.labels) if hasattr(chunk, "logits") else chunk
        found, doubt, is_correct = tally(logits=logits, labels=labels, bins=bins)
        doubt, is_correct = doubt.double().cpu(), is_correct.cpu()
        confidence, size = 1 - doubt, cells()
        index = cell_index(confidence)
        ranks = torch.bincount(2 * doubt_index(doubt) + ~is_correct, minlength=2 * DOUBT_CELLS)
        return cls(
            found,
            torch.bincount(index, minlength=size),
            torch.bincount(index, weights=confidence, minlength=size),
            torch.bincount(index[is_correct], minlength=size),
            ranks.view(-1, 2).T,
            residual_grid(confidence, is_correct),
        )

    def __add__(self, other: StreamSums) -> StreamSums:
        """The sums of both sets of samples, which must have the same classes and bins."""
        return StreamSums(
            self.tally + other.tally,
            self.count + other.count,
            self.confidence + other.confidence,
            self.correct + other.correct,
            self.ranks + other.ranks,
            self.residuals + other.residuals,
        )


def sums_of_stream(chunks: Iterable[Any], *, bins: int = 15) -> StreamSums:
    """The sums of all chunks, in one pass and in constant memory."""
    found: StreamSums | None = None
    for chunk in chunks:
        part = StreamSums.of(chunk, bins=bins)
        found = part if found is None else found + part
    if found is None:
        raise InputError("there was nothing to evaluate: `chunks` gave no chunk")
    return found
