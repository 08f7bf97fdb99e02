"""The splits of the scores: their identities, and recalibration with a known answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import torch

from calgrad.checks import InputError
from calgrad.metrics import brier, brier_parts, calibration_refinement, ece, nll
from tests.metrics.samples import make
from tests.reference import metrics as reference


@pytest.mark.parametrize("score", ["nll", "brier"])
def test_the_best_temperature_is_scipys(score):
    logits, labels = make(1000, 5, scale=3, dtype=torch.float64)
    slow = reference.nll if score == "nll" else reference.brier
    best = scipy.optimize.minimize_scalar(
        lambda e: slow(reference.softmax(logits.numpy() / 2**e), labels.numpy()), bounds=(0, 3), method="bounded"
    )
    split = calibration_refinement(logits=logits, labels=labels, score=score)
    assert split.refinement == pytest.approx(best.fun, rel=1e-7)
    assert split.temperature == pytest.approx(2**best.x, rel=1e-3)
    assert split.total == pytest.approx((nll if score == "nll" else brier)(logits=logits, labels=labels))
    assert split.total == pytest.approx(split.calibration + split.refinement, rel=1e-12)


@pytest.mark.parametrize("score", ["nll", "brier"])
@pytest.mark.parametrize("scale", [1e-3, 7.0, 1e3])
def test_a_temperature_changes_calibration_and_leaves_refinement(score, scale):
    logits, labels = make(2000, 4, dtype=torch.float64)
    plain = calibration_refinement(logits=logits, labels=labels, score=score)
    scaled = calibration_refinement(logits=scale * logits, labels=labels, score=score)
    assert scaled.refinement == pytest.approx(plain.refinement, rel=1e-6)
    assert scaled.temperature == pytest.approx(scale * plain.temperature, rel=2e-3)
    assert plain.calibration < 0.002 < scaled.calibration


def test_probabilities_are_split_like_their_logits():
    logits, labels = make(500, 3, scale=2, dtype=torch.float64)
    from_logits = calibration_refinement(logits=logits, labels=labels)
    from_probs = calibration_refinement(logits.softmax(1), labels)
    assert from_probs.calibration == pytest.approx(from_logits.calibration, rel=1e-9)
    lost = calibration_refinement([[1.0, 0.0], [0.9, 0.1]], [1, 0])
    assert lost.total == lost.calibration == math.inf
    assert lost.refinement < 1


def test_golden_temperature(golden):
    """The NLL-optimal temperature of the golden validation logits is 2.498, its NLL 0.179."""
    split = calibration_refinement(logits=golden["val_logits"], labels=golden["val_labels"])
    assert split.temperature == pytest.approx(2.498, abs=2e-3)
    assert split.refinement == pytest.approx(0.179, abs=5e-4)


def test_murphys_identity():
    logits, labels = make(1200, 4, scale=2, dtype=torch.float64)
    probs = logits.softmax(1)
    confidence, is_correct = reference.top(probs.numpy(), labels.numpy())
    index = np.ceil(confidence * 15).astype(int) - 1
    mean = np.bincount(index, confidence, 15) / np.maximum(np.bincount(index, minlength=15), 1)
    binned = np.mean((mean[index] - is_correct) ** 2)
    parts = brier_parts(probs, labels)
    assert parts.reliability - parts.resolution + parts.uncertainty == pytest.approx(binned, rel=1e-12)
    assert parts.reliability == pytest.approx(ece(probs, labels, norm="l2") ** 2, rel=1e-12)
    assert parts.uncertainty == pytest.approx(is_correct.mean() * (1 - is_correct.mean()), rel=1e-12)


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="`score` must be one of"):
        calibration_refinement([[0.5, 0.5]], [0], score="ece")
