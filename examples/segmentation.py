"""Segmentation: read handwritten digits in a cluttered scene, pixel by pixel, and believe the probabilities.

Each scene holds four digits of scikit-learn's data, enlarged and shifted, under noise. A pixel is background (class 0) or
ink of a digit (classes 1 to 10); the blurred rims of the strokes are nobody's (label 255) and take part in nothing. One
small net is trained with cross-entropy and one with the paper's loss. Then one temperature, fitted on the pixels of
validation scenes, repairs each, and the test scenes judge.

    python examples/segmentation.py
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import calgrad
from calgrad.metrics.streaming import Accuracy, CalibrationError
from calgrad.predictions import flatten_classes, map_rows

CLASSES, VOID, SIZE, NOISE = 11, 255, 32, 0.3


def scenes(images: Tensor, digits: Tensor, n: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures (n, 1, 32, 32) and labels (n, 32, 32): a digit in each quarter, shifted by up to 2 pixels."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(len(images), (n, 2, 2), generator=generator)
    shift = torch.randint(-2, 3, (n, 2, 2, 2), generator=generator)
    ink = nn.functional.interpolate(images[:, None], size=(14, 14), mode="bilinear")[:, 0]
    picture = torch.zeros(n, SIZE + 8, SIZE + 8)
    labels = torch.zeros(n, SIZE + 8, SIZE + 8, dtype=torch.int64)
    for i in range(n):
        for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
            one, (down, right) = chosen[i, row, column], shift[i, row, column].tolist()
            y, x = 5 + 16 * row + down, 5 + 16 * column + right
            patch = ink[one]
            picture[i, y : y + 14, x : x + 14] += patch
            labels[i, y : y + 14, x : x + 14][patch > 0.1] = VOID
            labels[i, y : y + 14, x : x + 14][patch > 0.5] = 1 + int(digits[one])
    picture, labels = picture[:, 4:-4, 4:-4], labels[:, 4:-4, 4:-4]
    return (picture + NOISE * torch.randn(picture.shape, generator=generator))[:, None], labels


class Net(nn.Module):
    """A small U-Net: down to a quarter of the size and up again, with the finer features brought along."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.fine = block(1, width)
        self.middle = nn.Sequential(nn.MaxPool2d(2), block(width, 2 * width), block(2 * width, 2 * width))
        self.coarse = nn.Sequential(nn.MaxPool2d(2), block(2 * width, 4 * width), block(4 * width, 4 * width))
        self.join = block(6 * width, 2 * width)
        self.head = nn.Conv2d(3 * width, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, K, H, W)."""
        fine = self.fine(x)
        middle = self.middle(fine)
        joined = self.join(torch.cat([middle, doubled(self.coarse(middle))], dim=1))
        return self.head(torch.cat([fine, doubled(joined)], dim=1))


def block(channels: int, width: int) -> nn.Sequential:
    """Convolution, normalisation, ReLU."""
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


def doubled(x: Tensor) -> Tensor:
    """Twice the size."""
    return nn.functional.interpolate(x, scale_factor=2, mode="nearest")


def train(net: nn.Module, pictures: Tensor, labels: Tensor, loss: nn.Module, *, steps: int, batch: int = 16) -> None:
    """Adam with a one-cycle schedule."""
    optimiser = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.01, total_steps=steps)
    for _ in range(steps):
        chosen = torch.randint(len(pictures), (batch,))
        optimiser.zero_grad()
        loss(net(pictures[chosen]), labels[chosen]).backward()  # logits (N, K, H, W), labels (N, H, W)
        optimiser.step()
        schedule.step()


@torch.no_grad()
def predict(net: nn.Module, pictures: Tensor) -> Tensor:
    """Logits (n, K, H, W)."""
    return torch.cat([net.eval()(part) for part in pictures.split(64)])


def ink_iou(prediction: Tensor, labels: Tensor) -> float:
    """Mean intersection over union of the ten digits, void pixels left out."""
    counts = labels != VOID
    scores = []
    for k in range(1, CLASSES):
        said, true = (prediction == k) & counts, labels == k
        scores.append(float((said & true).sum() / (said | true).sum().clamp_min(1)))
    return sum(scores) / len(scores)


def row(name: str, probs: Tensor, labels: Tensor) -> None:
    """Measure all pixels that count, and print a line."""
    rows, kept = flatten_classes(probs, labels, ignore_index=VOID)
    accuracy, nll, ece = (f(rows, kept) for f in (calgrad.accuracy, calgrad.nll, calgrad.ece))
    digit = kept > 0  # background is most of a scene, and easy: the ink tells more
    of_ink = calgrad.ece(rows[digit], kept[digit])
    iou = ink_iou(probs.argmax(dim=1), labels)
    print(f"{name:<24}{100 * accuracy:8.2f}%{100 * iou:8.1f}%{nll:9.4f}{100 * ece:8.2f}%{100 * of_ink:9.2f}%")


def main(steps: int = 240, train_scenes: int = 150) -> None:
    """Train both nets, repair both, print what changed."""
    torch.manual_seed(0)
    data = load_digits()
    images, digits = torch.from_numpy(data.images).float() / 16, torch.from_numpy(data.target)
    # The digits themselves are split, so that no handwriting is in two parts.
    train_x, train_y = scenes(images[:600], digits[:600], train_scenes, seed=1)
    val_x, val_y = scenes(images[600:1200], digits[600:1200], 150, seed=2)
    test_x, test_y = scenes(images[1200:], digits[1200:], 300, seed=3)

    print(f"{'':<24}{'accuracy':>9}{'ink IoU':>9}{'NLL':>9}{'ECE':>9}{'ECE, ink':>10}")
    for name, options in (("ce", {}), ("bsce-gra", {"gamma": 2})):
        torch.manual_seed(0)
        net = Net()
        train(net, train_x, train_y, calgrad.make_loss(name, ignore_index=VOID, **options), steps=steps)
        val, test = predict(net, val_x), predict(net, test_x)
        row(name, test.softmax(dim=1), test_y)
        rows = flatten_classes(val, val_y, ignore_index=VOID)
        temperature = calgrad.make_calibrator("temperature").fit(*rows)
        row(f"  temperature {temperature.parameters['temperature'].item():.2f}", map_rows(temperature, test), test_y)
        if name != "ce":  # what the loss does to the probabilities is known, and undone without a parameter
            link = calgrad.make_calibrator("link", loss=name, loss_options=options).fit(*rows)
            row("  link", map_rows(link, test), test_y)

    # The streaming modules take the same tensors, batch by batch: nothing the size of the data set is kept.
    error, accuracy = (kind(inputs="probs", ignore_index=VOID) for kind in (CalibrationError, Accuracy))
    for logits, labels in zip(test.split(50), test_y.split(50)):
        error.update(map_rows(temperature, logits), labels)
        accuracy.update(map_rows(temperature, logits), labels)
    print(f"streamed, with the temperature: accuracy {100 * accuracy.compute():.2f}%, ECE {100 * error.compute():.2f}%")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=240)
    main(parser.parse_args().steps)
