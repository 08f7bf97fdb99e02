"""Wide residual nets (Zagoruyko and Komodakis 2016) as published: pre-activation blocks, WRN-28-10.

The paper's WRN-26-10 is another thing, a post-activation ResNet of great width: `calgrad.models.resnet.wrn26_10`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calgrad.checks import InputError
from calgrad.models.base import Classifier, init_fan_out
from calgrad.models.stem import is_large

__all__ = ["WideResNet", "wrn28_10"]


class PreActivationBlock(nn.Module):
    """Batch norm and ReLU before each convolution; where shapes change, the shortcut starts after the first ReLU."""

    def __init__(self, inputs: int, width: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.shortcut = nn.Conv2d(inputs, width, 1, stride, bias=False) if stride != 1 or inputs != width else None

    def forward(self, x: Tensor) -> Tensor:
        """Maps of `width` channels."""
        ready = F.relu(self.bn1(x))
        out = self.conv2(self.dropout(F.relu(self.bn2(self.conv1(ready)))))
        return out + (x if self.shortcut is None else self.shortcut(ready))


class WideResNet(Classifier):
    """Three stages of (depth - 4) / 6 blocks at widths 16, 32, 64 times `widen`.

    Images of 128 pixels and more get a 7x7 convolution of stride 2 and a max-pool in place of the 3x3 convolution.
    """

    def __init__(
        self, depth: int, widen: int, *, classes: int, image_size: int, channels: int = 3, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if (depth - 4) % 6:
            raise InputError(f"`depth` of a wide ResNet must be 6n + 4, got {depth}")
        if is_large(image_size):
            self.stem = nn.Sequential(nn.Conv2d(channels, 16, 7, 2, 3, bias=False), nn.MaxPool2d(3, 2, 1))
        else:
            self.stem = nn.Sequential(nn.Conv2d(channels, 16, 3, 1, 1, bias=False))
        stages, inputs = [], 16
        for index in range(3):
            width, blocks = 16 * 2**index * widen, []
            for place in range((depth - 4) // 6):
                blocks.append(PreActivationBlock(inputs, width, 2 if index and not place else 1, dropout))
                inputs = width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(inputs)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs, classes)
        init_fan_out(self)

    def features(self, x: Tensor) -> Tensor:
        """Averaged maps of the last stage."""
        return torch.flatten(self.pool(F.relu(self.norm(self.stages(self.stem(x))))), 1)


def wrn28_10(*, classes: int, image_size: int, channels: int = 3, dropout: float = 0.0) -> WideResNet:
    """WRN-28-10."""
    return WideResNet(28, 10, classes=classes, image_size=image_size, channels=channels, dropout=dropout)
