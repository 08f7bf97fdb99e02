"""What some losses take besides logits and labels."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def loss_arguments():
    """Further arguments of a loss's forward: consistency-gra wants mean probabilities of the logits' shape."""

    def make(name, logits):
        if name != "consistency-gra":
            return []
        noisy = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return [noisy.softmax(0 if logits.ndim == 1 else 1).to(logits.dtype)]

    return make
