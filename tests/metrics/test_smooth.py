"""Smooth ECE: brute force over all samples and mirror images, and its known properties.

smECE(s) - s falls with s, so one brute-force value at the s found proves it: smECE(s) must be s.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calgrad.metrics import ece, smooth_ece
from calgrad.metrics.smooth import CELLS, fixed_point, residual_grid, smooth_ece_of
from tests.metrics.samples import make
from tests.reference import metrics as reference


def of(confidence, is_correct):
    return smooth_ece_of(torch.from_numpy(confidence), torch.from_numpy(is_correct))


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0, 6.0])
def test_against_brute_force(scale):
    logits, labels = make(400, 4, scale=scale, dtype=torch.float64)
    confidence, is_correct = reference.top(logits.softmax(1).numpy(), labels.numpy())
    found = of(confidence, is_correct)
    assert reference.smoothed_error(confidence, is_correct, found) == pytest.approx(found, rel=1e-5)


def test_against_brute_force_on_a_saturated_net():
    rng = np.random.default_rng(0)
    confidence = np.append(1 - 10 ** rng.uniform(-7, -2, 900), rng.uniform(0.3, 1, 100))
    is_correct = np.append(rng.random(900) < 0.99, rng.random(100) < 0.9)
    found = of(confidence, is_correct)
    assert reference.smoothed_error(confidence, is_correct, found) == pytest.approx(found, rel=1e-5)


def test_right_on_the_saturated_golden_net(golden):
    """relplot says 6.06 % here. All residuals lean one way, so smooth ECE is the mean gap, 4.34 %, at any bandwidth."""
    logits, labels = golden["test_logits"], golden["test_labels"]
    value = smooth_ece(logits=logits, labels=labels)
    assert round(100 * value, 2) == 4.34
    cooler = torch.from_numpy(logits) / 2.5
    confidence, is_correct = reference.top(cooler.softmax(1).double().numpy(), labels)
    found = smooth_ece(logits=cooler, labels=labels)
    assert reference.smoothed_error(confidence, is_correct, found, mesh=1001) == pytest.approx(found, rel=1e-4)


def test_all_residuals_of_one_sign_give_the_mean_gap():
    confidence = np.full(100, 0.9)
    is_correct = np.arange(100) < 50
    assert of(confidence, is_correct) == pytest.approx(0.4, rel=1e-6)
    assert of(np.full(10, 1 - 1e-7), np.ones(10, dtype=bool)) == pytest.approx(1e-7, rel=1e-3)
    assert of(np.ones(10), np.ones(10, dtype=bool)) == 0.0


def test_it_lies_between_the_mean_gap_and_a_fine_ece():
    logits, labels = make(3000, 4, scale=2, dtype=torch.float64)
    value = smooth_ece(logits=logits, labels=labels)
    assert ece(logits=logits, labels=labels, bins=1) - 1e-9 <= value <= ece(logits=logits, labels=labels, bins=500)


def test_it_is_continuous_where_ece_jumps():
    labels = torch.tensor([0, 1] * 50)
    near = torch.tensor([[0.8 + 1e-6, 0.2 - 1e-6], [0.8 - 1e-6, 0.2 + 1e-6]]).repeat(50, 1)
    same = torch.tensor([[0.8, 0.2]]).repeat(100, 1)
    assert (
        abs(ece(near, labels) - ece(same, labels)) > 0.1
    )  # 0.8 is an edge: right and wrong ones in two bins, or in one
    assert smooth_ece(near, labels) == pytest.approx(smooth_ece(same, labels), abs=1e-5)


def test_grids_add_up():
    logits, labels = make(500, 3, dtype=torch.float64)
    confidence, is_correct = logits.softmax(1).max(1).values, logits.argmax(1) == labels
    parts = residual_grid(confidence[:123], is_correct[:123]) + residual_grid(confidence[123:], is_correct[123:])
    assert len(parts) == CELLS + 1
    assert fixed_point(parts / 500) == pytest.approx(smooth_ece_of(confidence, is_correct), rel=1e-9)
    assert parts.sum() == pytest.approx(float((confidence - is_correct.double()).sum()), abs=1e-9)
