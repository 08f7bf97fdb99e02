"""Predictions for the tests: a model whose over-confidence is known."""

from __future__ import annotations

import numpy as np
import torch


def make(n=500, classes=5, *, scale=1.0, spread=1.5, seed=0, dtype=torch.float32):
    """(logits, labels): the labels are drawn from softmax(logits / scale), so scale > 1 is over-confident."""
    generator = torch.Generator().manual_seed(seed)
    clean = spread * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(clean.softmax(1), 1, generator=generator)[:, 0]
    return (scale * clean).to(dtype), labels


def confidences(n, seed=0, low=0.3):
    """(confidence, is_correct) of a calibrated model."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(low, 1, n)
    return confidence, rng.random(n) < confidence
