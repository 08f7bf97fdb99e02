"""What scikit-learn hands over, in calgrad's words: labels of any type to indices, scores of any kind to logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from calgrad.checks import InputError


def encoded(y: np.ndarray, classes: Sequence[Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """The classes in the order of the columns, and each label's place among them."""
    check_classification_targets(y)
    if classes is None:
        known, labels = np.unique(y, return_inverse=True)
    else:
        known = np.asarray(classes)
        order = np.argsort(known)
        places = np.searchsorted(known, y, sorter=order).clip(max=len(known) - 1)
        labels = order[places]
        if (strangers := known[labels] != y).any():
            raise InputError(f"label {y[strangers.argmax()].item()!r} is not among the classes {known.tolist()}")
    if len(known) < 2:
        raise InputError(f"a classifier needs at least two classes, got {len(known)} class: {known.tolist()}")
    return known, labels.astype(np.int64)


def as_logits(scores: np.ndarray, classes: int, *, space: str) -> np.ndarray:
    """(N, K) logits of scores (N, K), or (N, 1) for the second of two classes; a probability of 0 gives -inf."""
    columns = scores.shape[1]
    if columns != classes and not (columns == 1 and classes == 2):
        raise InputError(
            f"scores must have a column a class (or one column for two classes): got {columns} columns and {classes} "
            "classes; where the labels lack some of the columns' classes, name them all with `classes=`"
        )
    if space == "probs":
        if scores.min() < 0 or scores.max() > 1 + 1e-3:
            raise InputError(f"probs must lie in [0, 1], got values in [{scores.min():.4g}, {scores.max():.4g}]")
        with np.errstate(divide="ignore"):
            scores = np.log(np.hstack([1 - scores, scores]) if columns == 1 else scores)
    elif columns == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    return scores


def log_floor(logits: np.ndarray) -> float:
    """What stands for the logarithm of 0: forests say 0 where no tree of theirs saw a class, and mean "rarely".

    Half of the smallest positive probability among the samples of `fit`. A far smaller number would let a few such
    samples decide the calibrator alone.
    """
    return float(logits[np.isfinite(logits)].min(initial=0.0)) - float(np.log(2))


def raised(logits: np.ndarray, floor: float) -> np.ndarray:
    """The logits with `floor` in the place of -inf."""
    return np.where(np.isneginf(logits), floor, logits) if np.isneginf(logits).any() else logits


def refuse_small_classes(labels: np.ndarray, classes: np.ndarray, folds: int) -> None:
    """Every fold must hold every class, or its clone does not know all columns."""
    counts = np.bincount(labels, minlength=len(classes))
    if counts.min() < folds:
        raise InputError(
            f"{folds}-fold cross-validation needs {folds} samples of each class, got {counts.min()} of "
            f"{classes[counts.argmin()].item()!r}; choose a smaller `cv`"
        )
