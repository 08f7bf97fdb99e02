"""Two small nets that train in about a second on one core: for digits, the toy, and trying things out."""

from __future__ import annotations

from torch import Tensor, nn

from calgrad.checks import positive_int
from calgrad.models.base import Classifier

__all__ = ["CNN", "MLP"]


class MLP(Classifier):
    """Flatten, then `layers` hidden layers of `hidden` ReLU units; one of them makes the paper's two-layer toy net."""

    def __init__(self, *, classes: int, image_size: int, channels: int, hidden: int = 128, layers: int = 1) -> None:
        super().__init__()
        positive_int("hidden", hidden)
        positive_int("layers", layers)
        width, modules = channels * image_size**2, []
        for _ in range(layers):
            modules += [nn.Linear(width, hidden), nn.ReLU(inplace=True)]
            width = hidden
        self.body = nn.Sequential(*modules)
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        """The last hidden layer."""
        return self.body(x.flatten(1))


class CNN(Classifier):
    """Two 3x3 convolutions with batch norm, halved between them; the last maps are pooled to 2x2."""

    def __init__(self, *, classes: int, image_size: int, channels: int, width: int = 32) -> None:
        super().__init__()
        positive_int("width", width)
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(8 * width, classes)

    def features(self, x: Tensor) -> Tensor:
        """The pooled maps, flattened."""
        return self.body(x)
