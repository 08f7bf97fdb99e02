"""What every model here is: `head(features(x))`, with a linear head.

The losses and the figures that look at features or at the last layer's gradient rely on nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

__all__ = ["Classifier", "init_fan_out"]


class Classifier(nn.Module, ABC):
    """Base class: a subclass defines `features(x) -> (N, D)` and sets `head`."""

    head: nn.Linear

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """(N, D): what the last layer sees."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, K)."""
        return self.head(self.features(x))


def init_fan_out(model: nn.Module) -> None:
    """He et al.'s normal initialisation by fan-out for every convolution; batch norms start as the identity."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            with torch.no_grad():
                module.weight.fill_(1.0)
                module.bias.zero_()
