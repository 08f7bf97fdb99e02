"""Accuracy and the proper scores: numbers that a model cannot improve by saying something else than it believes.

A proper score judges calibration and sharpness together, in one number without bins; its minimiser is the true
posterior. Report it beside every calibration error: a model that always answers with the class frequencies is
calibrated, and useless.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calgrad.checks import ArrayLike, at_least, logits_and_labels, probs_and_labels
from calgrad.metrics.binning import rows_at_once
from calgrad.metrics.rows import checked_top_label, probs_in_blocks


def accuracy(
    probs: ArrayLike | None = None, labels: ArrayLike | None = None, *, logits: ArrayLike | None = None
) -> float:
    """The fraction of samples whose most probable class is the label (the first one among equals).

    Example:
        >>> from calgrad.metrics import accuracy
        >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.5
    """
    return float(checked_top_label(probs, labels, logits)[1].double().mean())


def nll(probs: ArrayLike | None = None, labels: ArrayLike | None = None, *, logits: ArrayLike | None = None) -> float:
    """The mean negative log-likelihood, -log p_true, in nats.

    From logits it is a log-softmax and always finite. From probabilities it is `inf` as soon as one label was given
    probability zero: that is the honest value, and a reason to keep logits.
    """
    return float(nll_rows(probs, labels, logits=logits).mean(dtype=torch.float64))


def brier(probs: ArrayLike | None = None, labels: ArrayLike | None = None, *, logits: ArrayLike | None = None) -> float:
    """The mean over samples of the sum over classes of (p_k - [k is the label]) ** 2; between 0 and 2."""
    rows = [brier_rows(*block) for block in probs_in_blocks(probs, labels, logits)]
    return float(torch.cat(rows).mean(dtype=torch.float64))


def generalised_brier(
    probs: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    gamma: float = 2.0,
    beta: float = 2.0,
) -> float:
    """The mean of (the beta-norm of p - e_y) ** gamma, the weight of the BSCE losses read as a score.

    With gamma = beta = 2 it is the Brier score; with beta = 1 it is (2 (1 - p_true)) ** gamma. Other values are not
    proper scores: read them as a measure of uncertainty, not as a ranking of models.

    Args:
        probs: (N, K) probabilities, or pass `logits`.
        labels: (N,) class indices.
        logits: (N, K) logits instead of `probs`.
        gamma: the exponent, at least 0.
        beta: the order of the norm, at least 1; `float("inf")` for the largest entry.
    """
    # DEVIATES: the paper prints sum |p_i - y_i| ** gamma, which is this only where gamma = beta
    # -> docs/deviations.md#generalised-brier
    at_least("gamma", gamma, 0)
    at_least("beta", beta, 1)
    rows = []
    for block, truth in probs_in_blocks(probs, labels, logits):
        error = block.scatter_add(1, truth[:, None], block.new_full((len(block), 1), -1.0))
        rows.append(torch.linalg.vector_norm(error, ord=beta, dim=1).pow(gamma))
    return float(torch.cat(rows).mean(dtype=torch.float64))


def nll_rows(probs: ArrayLike | None, labels: ArrayLike | None, *, logits: ArrayLike | None = None) -> Tensor:
    """-log p_true of each sample."""
    if logits is None or probs is not None:
        probs, labels = probs_and_labels(probs, labels, logits)
        return -probs.gather(1, labels[:, None])[:, 0].log()
    logits, labels = logits_and_labels(logits, labels)
    values, step = logits.new_empty(len(logits)), rows_at_once(logits)
    for part in (slice(start, start + step) for start in range(0, len(logits), step)):
        values[part] = torch.nn.functional.cross_entropy(logits[part], labels[part], reduction="none")
    return values


def brier_rows(probs: Tensor, labels: Tensor) -> Tensor:
    """The squared distance of each row from its one-hot label, with no difference of nearly equal sums in it."""
    squares = probs * probs
    p_true = probs.gather(1, labels[:, None])
    squares.scatter_(1, labels[:, None], (1 - p_true).square())
    return squares @ squares.new_ones(squares.shape[1])
