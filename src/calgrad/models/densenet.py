"""DenseNet-121 (Huang et al. 2017): growth 32, four times that in each bottleneck, transitions that halve the channels.

Small images get a 3x3 convolution without batch norm, as in the paper's code; large ones get ImageNet's stem.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calgrad.models.base import Classifier
from calgrad.models.stem import Stem, is_large

__all__ = ["DenseNet", "densenet121"]


class DenseLayer(nn.Module):
    """Adds `growth` channels, computed from all channels so far."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """All channels so far, then the new ones."""
        new = self.conv1(F.relu(self.norm1(x), inplace=True))
        new = self.conv2(F.relu(self.norm2(new), inplace=True))
        return torch.cat([x, new], dim=1)


class Transition(nn.Module):
    """Fewer channels, half the side."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, outputs, H / 2, W / 2)."""
        return F.avg_pool2d(self.conv(F.relu(self.norm(x), inplace=True)), 2)


class DenseNet(Classifier):
    """Dense blocks with transitions between them; weights start as torch initialises them.

    Args:
        depths: Layers in each block.
        growth: Channels a layer adds.
        reduction: Part of the channels that a transition keeps.
        classes: K.
        image_size: Picks the stem.
        channels: Of the input.
    """

    def __init__(
        self,
        depths: Sequence[int],
        *,
        growth: int = 32,
        reduction: float = 0.5,
        classes: int,
        image_size: int,
        channels: int = 3,
    ) -> None:
        super().__init__()
        width = 2 * growth
        self.stem: nn.Module
        if is_large(image_size):
            self.stem = Stem(channels, width, image_size=image_size)
        else:
            self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        blocks: list[nn.Module] = []
        for index, depth in enumerate(depths):
            layers = [DenseLayer(width + place * growth, growth) for place in range(depth)]
            blocks.append(nn.Sequential(*layers))
            width += depth * growth
            if index < len(depths) - 1:
                blocks.append(Transition(width, int(width * reduction)))
                width = int(width * reduction)
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(width)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Averaged maps of the last block."""
        return torch.flatten(self.pool(F.relu(self.norm(self.blocks(self.stem(x))), inplace=True)), 1)


def densenet121(*, classes: int, image_size: int, channels: int = 3) -> DenseNet:
    """DenseNet-121: blocks of 6, 12, 24 and 16 layers."""
    return DenseNet((6, 12, 24, 16), classes=classes, image_size=image_size, channels=channels)
