"""A model whose miscalibration is known, and every calibrator by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calgrad.posthoc import CALIBRATORS, Calibrator, make_calibrator


def build(name: str, **options) -> Calibrator:
    """Any calibrator; those that undo a loss get one."""
    if name.startswith("link"):
        options.setdefault("loss", "bsce-gra")
    return make_calibrator(name, **options)


def sample(n: int, classes: int, *, seed: int = 0, scale: float = 1.5, dtype=torch.float64):
    """Logits of a perfectly calibrated model, with labels drawn from it."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return logits.to(dtype), labels


@pytest.fixture(params=sorted(CALIBRATORS))
def name(request) -> str:
    return request.param


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
