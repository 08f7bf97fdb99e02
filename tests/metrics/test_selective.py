"""AURC: the slow mean over orders, identities, and what saturation does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calgrad.metrics import aurc
from calgrad.metrics.selective import _harmonic
from tests.metrics.samples import make
from tests.reference import metrics as reference


@pytest.mark.parametrize("seed", range(4))
def test_against_the_definition(seed):
    logits, labels = make(200, 4, seed=seed, dtype=torch.float64)
    confidence, is_correct = reference.top(logits.softmax(1).numpy(), labels.numpy())
    expected = reference.aurc(confidence, is_correct, np.random.default_rng(0))
    assert aurc(logits=logits, labels=labels) == pytest.approx(expected, rel=1e-12)
    assert aurc(logits.softmax(1), labels) == pytest.approx(expected, rel=1e-12)


def test_ties_are_averaged_over_their_orders():
    rng = np.random.default_rng(0)
    confidence = rng.choice([0.6, 0.7, 0.9], 40)
    is_correct = rng.random(40) < confidence
    probs = np.stack([confidence, 1 - confidence], 1)
    expected = reference.aurc(confidence, is_correct, rng, orders=20_000)
    assert aurc(probs, (~is_correct).astype(int)) == pytest.approx(expected, abs=1e-3)
    order = rng.permutation(40)
    assert aurc(probs[order], (~is_correct).astype(int)[order]) == pytest.approx(
        aurc(probs, (~is_correct).astype(int)), rel=1e-12
    )


def test_a_random_ranking_gives_the_error_and_a_perfect_one_the_least():
    labels = torch.tensor([0] * 70 + [1] * 30)
    assert aurc(torch.tensor([[0.8, 0.2]]).repeat(100, 1), labels) == pytest.approx(0.3)
    confidence = torch.linspace(1, 0.6, 100, dtype=torch.float64)
    perfect = torch.stack([confidence, 1 - confidence], 1)
    expected = sum((i - 70) / i for i in range(71, 101)) / 100
    assert aurc(perfect, labels) == pytest.approx(expected, rel=1e-12)


def test_float32_logits_keep_the_order_that_float32_probs_lose(golden):
    logits, labels = torch.from_numpy(golden["test_logits"]), golden["test_labels"]
    exact = aurc(logits.double().softmax(1), labels)
    assert aurc(logits=logits, labels=labels) == pytest.approx(exact, rel=1e-9)
    assert abs(aurc(logits.softmax(1), labels) - exact) > 1e-5  # 0.954 % instead of 0.950 %


def test_a_temperature_leaves_it_alone_in_two_classes():
    logits, labels = make(500, 2, dtype=torch.float64)
    assert aurc(logits=5 * logits, labels=labels) == pytest.approx(aurc(logits=logits, labels=labels), rel=1e-9)


def test_the_harmonic_series():
    n = np.array([0, 1, 2, 255, 256, 257, 300, 10_000])
    assert np.allclose(_harmonic(n), [sum(1 / i for i in range(1, k + 1)) for k in n], rtol=1e-14, atol=0)
