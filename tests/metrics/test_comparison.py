"""Paired tests of two models: against scipy, against resampled rows, and on models known to be equal."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import torch

from calgrad.checks import InputError
from calgrad.metrics import accuracy, brier, compare_models, comparison, ece, nll
from tests.metrics.samples import make


@pytest.fixture(scope="module")
def models():
    """Two models on the same samples: the second is noisier and over-confident."""
    logits, labels = make(1500, 4, dtype=torch.float64)
    noise = torch.randn(1500, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return logits, 1.5 * (logits + 0.5 * noise), labels


def test_values_and_differences_are_the_metrics(models):
    a, b, labels = models
    result = compare_models(logits=(a, b), labels=labels, draws=200)
    for metric in (accuracy, nll, brier, ece):
        row = getattr(result, metric.__name__)
        assert row.a == pytest.approx(metric(logits=a, labels=labels), rel=1e-9)
        assert row.b == pytest.approx(metric(logits=b, labels=labels), rel=1e-9)
        assert row.difference == pytest.approx(row.a - row.b, abs=1e-12)
        assert row.low < row.difference < row.high
        assert row.p_value < 0.05
    swapped = compare_models(logits=(b, a), labels=labels, draws=200)
    assert swapped.nll.difference == pytest.approx(-result.nll.difference)


def test_mcnemar_is_the_binomial_test(models):
    a, b, labels = models
    right_a, right_b = a.argmax(1) == labels, b.argmax(1) == labels
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    expected = scipy.stats.binomtest(only_a, only_a + only_b).pvalue
    assert compare_models(logits=(a, b), labels=labels, draws=10).accuracy.p_value == pytest.approx(expected, rel=1e-9)


def test_the_sign_flips_agree_with_scipy_and_with_their_limit(models, monkeypatch):
    a, b, labels = models
    c = a + 0.02 * b  # nearly the same model: a p-value away from 0
    drawn = compare_models(logits=(a, c), labels=labels, draws=4000).brier
    rows = [(p.softmax(1) - torch.nn.functional.one_hot(labels, 4)).square().sum(1).numpy() for p in (a, c)]
    t_test = scipy.stats.ttest_rel(*rows)
    assert drawn.p_value == pytest.approx(t_test.pvalue, abs=0.03)
    interval = t_test.confidence_interval(0.95)
    assert (drawn.low, drawn.high) == pytest.approx((interval.low, interval.high), rel=5e-3)
    monkeypatch.setattr(comparison, "MOST_FLIPPED", 10)
    limit = compare_models(logits=(a, c), labels=labels).brier
    assert limit.test == "paired normal"
    assert limit.p_value == pytest.approx(t_test.pvalue, abs=2e-3)


def test_the_paired_bootstrap_of_ece_is_that_of_rows(models):
    a, b, labels = models
    rng = np.random.default_rng(0)
    differences = []
    for _ in range(300):
        rows = torch.from_numpy(rng.integers(1500, size=1500))
        differences.append(ece(logits=a[rows], labels=labels[rows]) - ece(logits=b[rows], labels=labels[rows]))
    row = compare_models(logits=(a, b), labels=labels, draws=3000).ece
    low, high = 2 * row.difference - np.quantile(differences, [0.975, 0.025])
    width = high - low
    assert row.low == pytest.approx(low, abs=0.15 * width)
    assert row.high == pytest.approx(high, abs=0.15 * width)


def test_a_model_does_not_differ_from_itself():
    logits, labels = make(400, 3)
    result = compare_models(logits=(logits, logits), labels=labels, draws=100)
    for row in (result.accuracy, result.nll, result.brier, result.ece):
        assert (row.difference, row.p_value) == (0.0, 1.0)


def test_equal_models_are_rarely_told_apart():
    p = {"accuracy": [], "nll": [], "brier": [], "ece": []}
    for seed in range(60):
        clean, labels = make(400, 3, seed=seed, dtype=torch.float64)
        noise = torch.randn(2, 400, 3, generator=torch.Generator().manual_seed(seed + 999), dtype=torch.float64)
        result = compare_models(logits=tuple(clean + 0.5 * noise), labels=labels, draws=199, seed=seed)
        for name, values in p.items():
            values.append(getattr(result, name).p_value)
    for name, values in p.items():
        assert np.mean(np.array(values) <= 0.05) <= 0.15, name
        assert 0.35 < np.mean(values) < 0.75, name


def test_predictions_and_probs_are_accepted(models):
    a, b, labels = models
    direct = compare_models(logits=(a, b), labels=labels, draws=50)
    first, second = (SimpleNamespace(logits=x, labels=labels) for x in (a, b))
    assert compare_models(first, second, draws=50) == direct
    probs = compare_models(probs=(a.softmax(1), b.softmax(1)), labels=labels, draws=50)
    assert probs.nll.difference == pytest.approx(direct.nll.difference, rel=1e-9)
    assert json.loads(json.dumps(direct.to_dict()))["ece"]["test"] == "paired bootstrap"
    assert "a - b" in str(direct)


def test_bad_input_is_refused(models):
    a, b, labels = models
    first = SimpleNamespace(logits=a, labels=labels)
    with pytest.raises(InputError, match="same samples in the same order"):
        compare_models(first, SimpleNamespace(logits=b, labels=labels.flip(0)))
    with pytest.raises(InputError, match="pass two predictions"):
        compare_models(first)
    with pytest.raises(InputError, match="pass two predictions"):
        compare_models(logits=(a, b), probs=(a, b), labels=labels)
    with pytest.raises(InputError, match="`labels` must have shape"):
        compare_models(logits=(a, b[:10]), labels=labels)
