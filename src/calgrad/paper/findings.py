"""What reproducing the paper brought to light, each with its number: `calgrad paper findings`.

- **Noise floor.** A perfectly calibrated network shows an ECE above zero, because a test set is finite. How do the
  differences in Table 1 compare with that floor and its spread?
- **DFL-GRA.** The published code detaches the rival's probability alone. How far is its gradient from u x the
  gradient of CE?
- **beta = 1.** The 1-norm of p - e_y is 2 (1 - p_y): focal's weight times 2 ** gamma.
- **CIFAR-100's normalisation.** Trained with CIFAR's mean and deviation, tested with ImageNet's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from calgrad.data.spec import CIFAR_MEAN, CIFAR_STD, IMAGENET_MEAN, IMAGENET_STD
from calgrad.losses import BrierNorm, Dual, TrueClass, make_loss
from calgrad.metrics import noise_floor
from calgrad.paper.published import LOSS_TITLES, read_published
from calgrad.paper.runs import Row
from calgrad.report.tables import Cell, Table

SHAPE = 4.6
"""Concentration of the Beta distribution that stands for a network's confidences; see `confidences_like`."""
TEST_SAMPLES = 10_000


def confidences_like(accuracy: float, *, samples: int = TEST_SAMPLES, seed: int = 0) -> np.ndarray:
    """Confidences of a calibrated network of this accuracy: Beta-distributed with mean `accuracy`.

    The concentration is that of real CIFAR-10 ResNet-50 confidences (trained by CE, at T = 2.5): their mean is 0.964
    and their standard deviation 0.079, so mean (1 - mean) / sd ** 2 - 1 = 4.6. Where there are real confidences,
    `noise_floor(logits=...)` needs no such stand-in.
    """
    generator = np.random.default_rng(seed)
    return np.clip(generator.beta(SHAPE * accuracy, SHAPE * (1 - accuracy), samples), 0, 1)


def floor_rows() -> list[Row]:
    """For each network of Table 1: BSCE-GRA, its best rival, their difference, and what chance alone would show."""
    accuracy = {(c.data, c.model): c.value for c in read_published("accuracy") if c.loss == "bsce-gra"}
    rows: list[Row] = []
    for place, fraction in accuracy.items():
        cells = [c for c in read_published("ece") if (c.data, c.model) == place and c.view == "before"]
        ours = next(c.value for c in cells if c.loss == "bsce-gra")
        rival = min((c for c in cells if c.loss != "bsce-gra"), key=lambda c: c.value)
        floor = noise_floor(confidence=confidences_like(fraction))
        rows.append(
            {
                "data": place[0],
                "model": place[1],
                "bsce_gra": ours,
                "rival": rival.loss,
                "rival_ece": rival.value,
                "difference": rival.value - ours,
                "floor": floor.mean,
                "floor_sd": floor.sd,
                "floor_high": floor.high,
                # Two networks judged on two test sets; on the same one part of the noise is shared and cancels.
                "in_sd": (rival.value - ours) / (math.sqrt(2) * floor.sd),
            }
        )
    return rows


def dual_gra_row(*, scale: float = 1, gamma: float = 5, samples: int = 10_000, classes: int = 10, seed: int = 0) -> Row:
    """How far DFL-GRA's gradient, as published and as here, is from u x the gradient of CE, on normal logits."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    uncertainty = (Dual() ** gamma)(logits.softmax(dim=1), labels)
    logits.requires_grad_()
    p_true = logits.softmax(dim=1).gather(1, labels[:, None]).squeeze(1)
    p_rival = (uncertainty ** (1 / gamma) - 1 + p_true).detach()

    def gradient(loss: Tensor) -> Tensor:
        return torch.autograd.grad(loss, logits, retain_graph=True)[0]

    wanted = uncertainty[:, None] * gradient(-p_true.log().sum())
    published = gradient(-((1 - p_true + p_rival) ** gamma * p_true.log()).sum())  # p_rival detached, p_true not
    ours = gradient(make_loss("dual-gra", gamma=gamma, reduction="sum")(logits, labels))
    return {
        "scale": scale,
        "published_off": float((published - wanted).norm() / wanted.norm()),
        "ours_off": float((ours - wanted).norm() / wanted.norm()),
    }


def beta_one_error(*, gamma: float = 4, samples: int = 10_000, classes: int = 10, seed: int = 0) -> float:
    """The largest relative difference of the Brier weight with beta = 1 from 2 ** gamma x focal's weight."""
    generator = torch.Generator().manual_seed(seed)
    probs = torch.randn(samples, classes, generator=generator, dtype=torch.float64).softmax(dim=1)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    brier, focal = (BrierNorm(beta=1) ** gamma)(probs, labels), (TrueClass() ** gamma)(probs, labels)
    return float((brier / (2**gamma * focal) - 1).abs().max())


def normalisation_rows() -> list[Row]:
    """What a network trained on CIFAR's statistics sees under ImageNet's: x' = contrast x + shift, by channel."""
    rows: list[Row] = []
    statistics = zip(("red", "green", "blue"), CIFAR_MEAN, CIFAR_STD, IMAGENET_MEAN, IMAGENET_STD, strict=True)
    for channel, mean, std, other_mean, other_std in statistics:
        rows.append({"channel": channel, "contrast": std / other_std, "shift": (mean - other_mean) / other_std})
    return rows


def findings_tables(
    floors: Sequence[Row], dual: Sequence[Row], beta_one: float, channels: Sequence[Row]
) -> list[Table]:
    """The findings, ready to print."""
    first = Table(
        "Table 1's ECE (%) before T against the noise of a finite test set",
        ["network", "BSCE-GRA", "best rival", "difference", "floor (sd)", "its 95 % point", "difference in sd"],
    )
    lines = []
    for r in floors:
        texts = [
            f"{r['data']}, {r['model']}",
            f"{100 * r['bsce_gra']:.2f}",
            f"{100 * r['rival_ece']:.2f} ({LOSS_TITLES[r['rival']]})",
            f"{100 * r['difference']:+.2f}",
            f"{100 * r['floor']:.2f} ({100 * r['floor_sd']:.2f})",
            f"{100 * r['floor_high']:.2f}",
            f"{r['in_sd']:+.1f}",
        ]
        lines.append([Cell(text) for text in texts])
    first.sections.append(("", lines))
    first.caption = (
        "The floor is what a perfectly calibrated network of the published accuracy would show on 10,000 images. The "
        "last column is the difference over sqrt(2) sd of that floor; seeds add their own spread, which is not published."
    )
    second = Table("Gradients and weights", ["what", "value"])
    pairs = []
    for r in dual:
        where = f"logits of sd {r['scale']:g}"
        pairs.append((f"published DFL-GRA: distance from u x grad CE, {where}", f"{r['published_off']:.0%}"))
        pairs.append((f"calgrad's dual-gra: distance from u x grad CE, {where}", f"{r['ours_off']:.1e}"))
    pairs += [
        ("Brier weight with beta = 1 over 2 ** gamma x focal's: largest difference from 1", f"{beta_one:.1e}"),
    ]
    pairs += [
        (f"CIFAR-100 tested with ImageNet's statistics, {r['channel']}", f"{r['contrast']:.3f} x {r['shift']:+.3f}")
        for r in channels
    ]
    second.sections.append(("", [[Cell(a), Cell(b)] for a, b in pairs]))
    return [first, second]
