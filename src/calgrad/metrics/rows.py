"""What is known of each sample once its logits are read: one exponential for everything.

With z_max the largest logit and rest = the sum of exp(z - z_max) over the *other* classes, the confidence is 1 / (1 +
rest), the NLL is log(1 + rest) + z_max - z_true, and the doubt, 1 - confidence, is rest / (1 + rest). A softmax alone
would lose the doubt of a saturated net: in float32 all confidences above 1 - 3e-8 are the same number, and the order of
half a data set, which AURC is about, is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from calgrad.checks import ArrayLike, logits_and_labels, probs_and_labels
from calgrad.metrics.binning import rows_at_once, top_label


class Rows(NamedTuple):
    """Per sample: probs (N, K), and (N,) confidence, doubt = 1 - confidence, is_correct, nll."""

    probs: Tensor
    confidence: Tensor
    doubt: Tensor
    is_correct: Tensor
    nll: Tensor


def rows_of_logits(logits: Tensor, labels: Tensor) -> Rows:
    """The rows of checked logits; among equal logits the first class is the prediction."""
    top, prediction = logits.max(dim=1)
    column = prediction[:, None]
    powers = (logits - top[:, None]).exp_().scatter_(1, column, 0.0)
    rest = powers @ powers.new_ones(powers.shape[1])
    probs = powers.scatter_(1, column, 1.0).div_((1 + rest)[:, None])
    nll = torch.log1p(rest) + (top - logits.gather(1, labels[:, None])[:, 0])
    return Rows(probs, 1 / (1 + rest), rest / (1 + rest), prediction == labels, nll)


def rows_of_probs(probs: Tensor, labels: Tensor) -> Rows:
    """The rows of checked probabilities; a label of probability zero has an infinite NLL."""
    confidence, prediction = probs.max(dim=1)
    nll = -probs.gather(1, labels[:, None])[:, 0].log()
    return Rows(probs, confidence, (1 - confidence).clamp_(min=0), prediction == labels, nll)


def probs_in_blocks(
    probs: ArrayLike | None, labels: ArrayLike | None, logits: ArrayLike | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The checked (probs, labels) of a metric's arguments, a block of rows at a time.

    Of logits only a block's softmax exists at once: with 21,000 classes a second (N, K) matrix may not fit. It is
    overwritten by the next block's, so use it before asking for that.
    """
    is_logits = probs is None and logits is not None
    matrix, indices = logits_and_labels(logits, labels) if is_logits else probs_and_labels(probs, labels, logits)
    rows = rows_at_once(matrix)
    buffer = torch.empty_like(matrix[:rows]) if is_logits else matrix
    for block, truth in zip(matrix.split(rows), indices.split(rows)):
        yield torch.softmax(block, dim=1, out=buffer[: len(block)]) if is_logits else block, truth


def checked_top_label(
    probs: ArrayLike | None, labels: ArrayLike | None, logits: ArrayLike | None
) -> tuple[Tensor, Tensor]:
    """`top_label` of a metric's arguments."""
    confidence, is_correct = zip(*(top_label(*block) for block in probs_in_blocks(probs, labels, logits)))
    return torch.cat(confidence), torch.cat(is_correct)
