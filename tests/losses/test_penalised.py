"""The batch-level penalties: slow reference, an independent library where there is one, and what must be zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torchmetrics.functional.classification import multiclass_calibration_error

from calgrad.losses import make_loss
from tests.reference import losses as reference

PENALTIES = {
    "mmce": lambda z, y: reference.mmce(z, y),
    "mmce-weighted": lambda z, y: reference.mmce_weighted(z, y),
    "soft-ece": lambda z, y: reference.soft_ece(z, y),
    "avuc": lambda z, y: reference.avuc(z, y, threshold=reference.entropy_midpoint(z, y)),
}


def batch(rows=40, classes=5):
    logits = 2 * torch.randn(rows, classes, dtype=torch.float64)
    labels = torch.where(torch.rand(rows) < 0.6, logits.argmax(1), torch.randint(0, classes, (rows,)))
    return logits, labels


def penalty_of(loss, logits, labels):
    return (loss(logits, labels) - F.cross_entropy(logits, labels)) / loss.strength


@pytest.mark.parametrize("name", PENALTIES)
def test_the_penalty_is_that_of_the_formula(name):
    for _ in range(5):
        logits, labels = batch()
        expected = PENALTIES[name](logits.numpy(), labels.numpy())
        assert penalty_of(make_loss(name), logits, labels).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", PENALTIES)
def test_its_gradient_is_that_of_the_value(name):
    loss, (logits, labels) = make_loss(name), batch(8, 3)
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits.requires_grad_())


@pytest.mark.parametrize("name", PENALTIES)
def test_strength_scales_the_penalty_and_zero_is_cross_entropy(name):
    logits, labels = batch()
    plain = F.cross_entropy(logits, labels)
    torch.testing.assert_close(make_loss(name, strength=0.0)(logits, labels), plain)
    one, four = (make_loss(name, strength=s)(logits, labels) - plain for s in (1.0, 4.0))
    torch.testing.assert_close(four, 4 * one)
    assert one > 0


def test_weighted_mmce_with_one_kind_of_prediction():
    logits = torch.tensor([[2.0, 0, 0], [0, 1.0, 0], [0, 0, 3.0]], dtype=torch.float64)
    for labels in (logits.argmax(1), (logits.argmax(1) + 1) % 3):
        expected = reference.mmce_weighted(logits.numpy(), labels.numpy())
        assert penalty_of(make_loss("mmce-weighted"), logits, labels).item() == pytest.approx(expected, rel=1e-9)


def test_a_perfectly_calibrated_group_costs_nothing():
    """Four predictions of confidence 3/4, three of them right: every confidence-based penalty is zero."""
    logits = torch.tensor([[np.log(3.0), 0.0]], dtype=torch.float64).expand(4, 2)
    labels = torch.tensor([0, 0, 0, 1])
    for name in ("mmce", "mmce-weighted", "soft-ece"):
        penalty = penalty_of(make_loss(name), logits, labels).item()
        if name == "mmce-weighted":  # the groups' means are compared: (1 - 3/4) of the right with 3/4 of the wrong
            assert penalty == pytest.approx(0.5, abs=1e-5)
        else:
            assert penalty == pytest.approx(0, abs=1e-5)


def test_soft_bins_become_hard_ones_as_the_temperature_falls():
    logits, labels = batch(500, 4)
    soft = penalty_of(make_loss("soft-ece", temperature=1e-7), logits, labels)
    hard = multiclass_calibration_error(logits.softmax(1), labels, num_classes=4, n_bins=15, norm="l2")
    assert soft.item() == pytest.approx(hard.item(), rel=1e-4)


def test_avuc_prefers_certain_right_and_uncertain_wrong_predictions():
    sure, unsure = torch.tensor([[4.0, 0, 0]]), torch.tensor([[0.1, 0, 0]])
    logits, right_first = torch.cat([sure, unsure]), torch.tensor([0, 1])
    good = penalty_of(make_loss("avuc", threshold=0.5), logits, right_first)
    bad = penalty_of(make_loss("avuc", threshold=0.5), logits, torch.tensor([1, 0]))
    assert good.item() == pytest.approx(0, abs=1e-6)
    assert bad.item() > 5


def test_soft_labels_count_correctness_by_its_probability():
    logits = torch.tensor([[np.log(3.0), 0.0]], dtype=torch.float64)
    labels = torch.tensor([[0.75, 0.25]], dtype=torch.float64)
    loss = make_loss("mmce")
    torch.testing.assert_close(loss(logits, labels), F.cross_entropy(logits, labels), rtol=0, atol=1e-5)
