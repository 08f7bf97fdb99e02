"""Weights from the calibration of neighbours in confidence: in the batch (ece-ce), on validation data (AdaFocal)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from calgrad import InputError
from calgrad.losses import AdaFocal, GapCE, make_loss
from calgrad.losses.base import as_rows
from tests.reference import losses as reference


def binary(confidence, right):
    """Logits of two classes with these confidences in class 0, and labels that make so many of them right."""
    logits = torch.tensor([[math.log(c / (1 - c)), 0.0] for c in confidence], dtype=torch.float64)
    return logits, torch.tensor([0 if r else 1 for r in right])


@pytest.mark.parametrize("bins", [1, 5, 15])
def test_gap_weights_are_those_of_the_definition(bins):
    logits, labels = 2 * torch.randn(60, 4, dtype=torch.float64), torch.randint(0, 4, (60,))
    loss = GapCE(bins=bins, reduction="none")
    expected = reference.gap_weights(logits.numpy(), labels.numpy(), bins=bins)
    np.testing.assert_allclose(loss.gap_weight(as_rows(logits, labels, -100)), expected, rtol=1e-10)
    assert expected.mean() == pytest.approx(1)
    value = loss(logits.requires_grad_(), labels)
    cross_entropy = F.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(value, torch.from_numpy(expected) * cross_entropy)
    ours, plain = (torch.autograd.grad(x.sum(), logits, retain_graph=True)[0] for x in (value, cross_entropy))
    torch.testing.assert_close(ours, torch.from_numpy(expected)[:, None] * plain)


def test_a_batch_without_a_gap_is_plain_cross_entropy():
    logits, labels = binary([0.75] * 4, [1, 1, 1, 0])
    torch.testing.assert_close(GapCE()(logits, labels), F.cross_entropy(logits, labels))


def test_the_miscalibrated_bin_gets_the_weight():
    logits, labels = binary([0.75] * 4 + [0.95] * 4, [1, 1, 1, 0, 0, 0, 1, 1])
    weight = GapCE(floor=0.05).gap_weight(as_rows(logits, labels, -100))
    torch.testing.assert_close(weight, torch.tensor([0.05 / 0.275] * 4 + [0.5 / 0.275] * 4, dtype=torch.float64))


def test_ignored_samples_fill_no_bin():
    logits, labels = binary([0.75] * 4 + [0.76] * 4, [1, 1, 1, 0] + [0] * 4)
    labels[4:] = -100
    torch.testing.assert_close(GapCE()(logits, labels), F.cross_entropy(logits[:4], labels[:4]))


def test_every_bin_starts_as_focal_loss():
    logits, labels = torch.randn(50, 4), torch.randint(0, 4, (50,))
    torch.testing.assert_close(AdaFocal(gamma=2.0)(logits, labels), make_loss("focal", gamma=2)(logits, labels))


def test_gamma_follows_the_sign_of_the_gap():
    loss = AdaFocal(bins=2, gamma=1.0)
    # The lower half of the confidences is under-confident by 0.4, the upper half over-confident by 0.45.
    logits, labels = binary([0.6] * 10 + [0.95] * 10, [1] * 10 + [1] * 5 + [0] * 5)
    loss.update(logits, labels)
    assert loss.uncertainty.edges.tolist() == pytest.approx([0.6])
    assert loss.uncertainty.gammas.tolist() == pytest.approx([math.exp(-0.4), math.exp(0.45)])
    loss.update(logits, labels)
    assert loss.uncertainty.gammas.tolist() == pytest.approx([math.exp(-0.8), math.exp(0.9)])


def test_gamma_crosses_to_inverse_focal_and_back_and_is_bounded():
    loss = AdaFocal(bins=1, gamma=0.25, switch=0.2, gamma_min=-0.5, gamma_max=0.3)
    under = binary([0.6] * 10, [1] * 10)
    over = binary([0.9] * 10, [0] * 10)
    seen = []
    for samples in (under, under, under, under, over, over, over, over):
        loss.update(*samples)
        seen.append(loss.uncertainty.gammas.item())
    # 0.25 e^-.4 < 0.2: crosses to -0.2; grows to -0.2 e^.4, -0.2 e^.8, then the bound; shrinks by e^.9; crosses; bound.
    expected = [-0.2, -0.2 * math.exp(0.4), -0.2 * math.exp(0.8), -0.5, -0.5 * math.exp(-0.9), 0.2, 0.3, 0.3]
    assert seen == pytest.approx(expected)


def test_a_negative_gamma_is_the_inverse_focal_loss():
    loss = AdaFocal(gamma=-2.0, gamma_min=-2.0)
    logits, labels = torch.randn(50, 4), torch.randint(0, 4, (50,))
    torch.testing.assert_close(loss(logits, labels), make_loss("inverse-focal", gamma=2)(logits, labels))


def test_each_sample_takes_the_gamma_of_its_bin():
    loss = AdaFocal(bins=4, reduction="none")
    loss.uncertainty.gammas.copy_(torch.tensor([1.0, 2.0, -1.0, 3.0]))
    p = torch.tensor([0.1, 0.25, 0.3, 0.5, 0.6, 0.75, 0.9], dtype=torch.float64)
    logits = torch.stack([p, 1 - p], dim=1).log()
    u = torch.stack([1 - p[0], 1 - p[1], (1 - p[2]) ** 2, (1 - p[3]) ** 2, 1 + p[4], 1 + p[5], (1 - p[6]) ** 3])
    torch.testing.assert_close(loss(logits, torch.zeros(7, dtype=torch.int64)), u * -p.log())


def test_equal_mass_bins_and_state():
    loss = AdaFocal(bins=5)
    logits, labels = 3 * torch.randn(1000, 10), torch.randint(0, 10, (1000,))
    loss.update(logits, labels)
    confidence = logits.double().softmax(1).amax(1)
    counts = torch.bincount(loss.uncertainty.bin_of(confidence.float()), minlength=5)
    assert counts.tolist() == pytest.approx([200] * 5, abs=1)
    gap = confidence - (logits.argmax(1) == labels).double()
    lowest = confidence.argsort()[:200]
    assert loss.uncertainty.gammas[0].item() == pytest.approx(math.exp(gap[lowest].mean()), rel=1e-2)
    other = AdaFocal(bins=5)
    other.load_state_dict(loss.state_dict())
    torch.testing.assert_close(other(logits, labels), loss(logits, labels), rtol=0, atol=0)


def test_update_ignores_padding_and_refuses_what_is_not_validation_data():
    loss, again = AdaFocal(bins=3), AdaFocal(bins=3)
    logits, labels = torch.randn(30, 4), torch.randint(0, 4, (30,))
    loss.update(logits, labels)
    again.update(torch.cat([logits, torch.randn(5, 4)]), torch.cat([labels, torch.full((5,), -100)]))
    torch.testing.assert_close(loss.uncertainty.gammas, again.uncertainty.gammas)
    with pytest.raises(InputError, match="class indices"):
        loss.update(logits, torch.rand(30, 4))
    with pytest.raises(InputError, match=r"\[0, 4\)"):
        loss.update(logits, labels + 4)
