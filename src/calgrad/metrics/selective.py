"""Does the confidence rank the mistakes last? The area under the risk-coverage curve.

Answer only the i most confident of n samples: coverage is i / n, risk is the error among them. A calibrated model can
rank badly and a miscalibrated one well (a temperature changes ECE and leaves AURC alone but for ties), so this is a
second question, not the same one again.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from calgrad.checks import ArrayLike, logits_and_labels, probs_and_labels
from calgrad.metrics.binning import ordered_pairs
from calgrad.metrics.rows import rows_of_logits, rows_of_probs

DOUBT_CELLS = (0x3F800000 >> 13) + 1
"""How many cells `doubt_index` knows; 0x3F800000 are the bits of 1.0."""


def aurc(probs: ArrayLike | None = None, labels: ArrayLike | None = None, *, logits: ArrayLike | None = None) -> float:
    """The mean over i = 1 ... n of the error among the i most confident samples; smaller is better.

    Equal confidences have no order; the result is the mean over all orders they could have, so that it does not depend
    on how the samples were shuffled. A random ranking gives the error rate itself. Pass logits where you can: float32
    probabilities of a saturated net are equal by the thousand.

    Example:
        >>> from calgrad.metrics import aurc
        >>> aurc([[0.9, 0.1], [0.6, 0.4]], [0, 1])  # the mistake is ranked last: (0 + 1/2) / 2
        0.25
    """
    if logits is None or probs is not None:
        rows = rows_of_probs(*probs_and_labels(probs, labels, logits))
    else:
        rows = rows_of_logits(*logits_and_labels(logits, labels))
    return aurc_of_ordered(*ordered_pairs(rows.doubt, rows.is_correct))


def aurc_of_ordered(doubt: Tensor, is_correct: Tensor) -> float:
    """AURC of vectors in ascending order of doubt, the most confident first (as `ordered_pairs` returns them)."""
    values = doubt.numpy()
    last = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, len(values))  # where each group of equals ends
    errors = np.cumsum(~is_correct.numpy())[last - 1]
    return aurc_of_groups(np.diff(last, prepend=0), np.diff(errors, prepend=0))


def aurc_of_groups(count: np.ndarray, errors: np.ndarray) -> float:
    """AURC of groups in descending order of confidence, each of `count` >= 1 samples that share it.

    An error at rank j stays in every later risk: it adds 1/j + ... + 1/n = H(n) - H(j - 1). Summed over the ranks up to
    j that is j (H(n) - H(j) + 1), so a group needs its two ends alone.
    """
    end = np.cumsum(count)
    n = end[-1]
    wrong = errors > 0
    end, count, errors = end[wrong], count[wrong], errors[wrong]
    start = end - count
    everything = _harmonic(n[None]) + 1
    share = end * (everything - _harmonic(end)) - start * (everything - _harmonic(start))
    return float((share * errors / count).sum() / n)


def doubt_index(doubt: Tensor) -> Tensor:
    """The cell of each doubt in [0, 1], int64, ascending: 1,024 to each halving, down to the smallest float32."""
    return (doubt.float().view(torch.int32) >> 13).long()


def aurc_of_cells(count: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """AURC of the cells of `doubt_index`, each taken as one group of equals, and how far the exact value can lie.

    The order inside a cell is lost; all mistakes first and all mistakes last are the worst and the best it can have
    been.
    """
    filled = np.flatnonzero(count)
    count, errors = count[filled], errors[filled]
    middle, none = aurc_of_groups(count, errors), np.zeros_like(errors)

    def in_two(sizes: tuple[np.ndarray, np.ndarray], wrong: tuple[np.ndarray, np.ndarray]) -> float:
        size = np.stack(sizes, axis=1).ravel()
        return aurc_of_groups(size[size > 0], np.stack(wrong, axis=1).ravel()[size > 0])

    worst = in_two((errors, count - errors), (errors, none))
    best = in_two((count - errors, errors), (none, errors))
    return middle, max(worst - middle, middle - best)


def _harmonic(n: np.ndarray) -> np.ndarray:
    """H(n) = 1 + 1/2 + ... + 1/n: by summation up to 256, then by its asymptotic series, exact to float64 from there."""
    small = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, 257))])
    x = 1.0 / np.maximum(n, 1)
    series = np.euler_gamma - np.log(x) + x * (0.5 - x * (1 / 12 - x * x / 120))
    return np.where(n <= 256, small[np.minimum(n, 256)], series)
