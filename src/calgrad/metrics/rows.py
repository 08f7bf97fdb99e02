"""What is known of each sample once its logits are read: one exponential for everything.

With z_max the largest logit and rest = the sum of exp(z - z_max) over the *other* classes, the confidence is 1 / (1 +
rest), the NLL is log(1 + rest) + z_max - z_true, and the doubt, 1 - confidence, is rest / (1 + rest). A softmax alone
would lose the doubt of a saturated net: in float32 all confidences above 1 - 3e-8 are the same number, and the order of
half a data set, which AURC is about, is gone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


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
