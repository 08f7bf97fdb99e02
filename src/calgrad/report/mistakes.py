"""Where a model goes wrong: class by class, and the mistakes it was surest of."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from calgrad.metrics.binning import class_sums
from calgrad.predictions import Predictions
from calgrad.report.images import Images
from calgrad.report.pooled import holm

MISTAKES = 12
CLASS_ROWS = 100


def class_label(predictions: Predictions, index: int) -> str:
    """A class's name, or its number."""
    names = predictions.class_names
    return names[index] if names else f"class {index}"


def class_rows(predictions: Predictions, probs: Tensor, *, limit: int = CLASS_ROWS) -> list[dict[str, Any]]:
    """The classes that were predicted, those furthest off first: what it says, how often it is right, and a test.

    The test asks whether the number of right answers among the samples called k can be what their confidences promise:
    a sum of Bernoulli variables, nearly normal, with a continuity correction. p-values are adjusted for the number of
    classes (Holm).
    """
    confidence, prediction = probs.max(dim=1)
    right = (prediction == predictions.labels).double()
    k = predictions.classes
    total = torch.bincount(prediction, minlength=k)
    said, correct, variance = (
        torch.bincount(prediction, weights=values.double(), minlength=k)
        for values in (confidence, right, confidence.double() * (1 - confidence.double()))
    )
    given, hit = class_sums(probs, predictions.labels, bins=15)
    by_class = (given - hit).abs().sum(dim=1) / predictions.n
    found = [int(c) for c in total.nonzero().squeeze(1)]
    p_values = holm([_p_value(float(said[c] - correct[c]), float(variance[c])) for c in found])
    rows: list[dict[str, Any]] = [
        {
            "key": f"class-{c}",
            "name": class_label(predictions, c),
            "n": int(total[c]),
            "says": _short(said[c] / total[c]),
            "right": _short(correct[c] / total[c]),
            "gap": _short((said[c] - correct[c]) / total[c]),
            "p_value": round(p, 6),
            "ece": _short(by_class[c]),
        }
        for c, p in zip(found, p_values, strict=True)
    ]
    # The misplaced samples decide, not the rate: a class of three samples is off by a lot and matters little.
    return sorted(rows, key=lambda r: -abs(r["gap"]) * r["n"])[:limit]


def surest_mistakes(
    predictions: Predictions, probs: Tensor, *, images: Images | None = None, limit: int = MISTAKES
) -> list[dict[str, Any]]:
    """The wrong predictions of highest confidence, with ids and, where there are images, thumbnails."""
    confidence, prediction = probs.max(dim=1)
    # A saturated net gives many mistakes probability 1; the margin in log-probability still ranks them.
    log_probs = predictions.log_probs.double()
    given = log_probs.gather(1, predictions.labels[:, None]).squeeze(1)
    margin = log_probs.amax(dim=1) - given
    found = (prediction != predictions.labels).nonzero().squeeze(1)
    found = found[margin[found].argsort(descending=True, stable=True)]
    found = found[confidence[found].argsort(descending=True, stable=True)]
    wrong = found[:limit].tolist()
    rows = []
    for i in wrong:
        name = str(predictions.ids[i]) if predictions.ids is not None else f"row {i}"
        row = {
            "id": name,
            "prediction": class_label(predictions, int(prediction[i])),
            "label": class_label(predictions, int(predictions.labels[i])),
            "confidence": float(confidence[i]),
            "p_true": float(given[i].exp()),
        }
        if images is not None and (picture := images.thumbnail(i, name)):
            row["image"] = picture
        rows.append(row)
    return rows


def _p_value(difference: float, variance: float) -> float:
    size = max(0.0, abs(difference) - 0.5)
    if variance <= 1e-12:
        return 1.0 if size == 0 else 0.0
    return math.erfc(size / math.sqrt(2 * variance))


def _short(value: Tensor | float) -> float:
    return round(float(value), 6)
