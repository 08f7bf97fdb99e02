"""Intervals over seeds and samples: against direct resampling, the two limits, and their coverage."""

from __future__ import annotations

import pytest
import torch

from calgrad import metrics
from calgrad.report.pooled import POOLED, holm, pool, pool_difference, resample, resampling_weights


def model(seed: int, n: int = 500, shift: float = 0.0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 4, generator=generator)
    labels = torch.multinomial((logits / (1.5 + shift)).softmax(1), 1, generator=generator).squeeze(1)
    return logits.log_softmax(1), labels


def test_values_equal_the_metrics():
    log_probs, labels = model(0)
    value = resample(log_probs, labels, resampling_weights(500, draws=3)).value
    probs = log_probs.double().exp()
    assert value["accuracy"] == pytest.approx(metrics.accuracy(probs, labels), abs=1e-12)
    assert value["ece"] == pytest.approx(metrics.ece(probs, labels), abs=1e-12)
    assert value["nll"] == pytest.approx(metrics.nll(probs, labels), abs=1e-12)
    assert value["brier"] == pytest.approx(metrics.brier(probs, labels), abs=1e-12)


def test_a_draw_is_the_metric_of_the_resampled_test_set():
    log_probs, labels = model(1, n=60)
    weights = resampling_weights(60, draws=5, seed=3)
    draws = resample(log_probs, labels, weights).draws
    for b in range(5):
        rows = torch.repeat_interleave(torch.arange(60), (weights[b] * 60).round().long())
        probs = log_probs.double().exp()[rows]
        assert float(draws["ece"][b]) == pytest.approx(metrics.ece(probs, labels[rows]), abs=1e-6)
        assert float(draws["brier"][b]) == pytest.approx(metrics.brier(probs, labels[rows]), abs=1e-6)


def test_one_seed_has_only_the_samples_part():
    log_probs, labels = model(2, n=2000)
    run = resample(log_probs, labels, resampling_weights(2000, draws=400))
    estimate = pool([run], "accuracy", samples=2000)
    p = estimate.value
    expected = 1.96 * (p * (1 - p) / 2000) ** 0.5
    assert estimate.high - p == pytest.approx(expected, rel=0.12)


def test_seeds_that_disagree_widen_the_interval():
    weights = resampling_weights(500, draws=100)
    alike = [resample(*model(0), weights)] * 3
    log_probs, labels = model(0)
    apart = [resample((log_probs * c).log_softmax(1), labels, weights) for c in (0.5, 1.0, 3.0)]
    narrow, wide = pool(alike, "nll", samples=500), pool(apart, "nll", samples=500)
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


@pytest.mark.parametrize("metric", POOLED)
def test_a_model_does_not_differ_from_itself(metric):
    weights = resampling_weights(500, draws=50)
    runs = [resample(*model(s), weights) for s in range(3)]
    same = pool_difference(runs, runs, metric, samples=500)
    assert (same.value, same.low, same.high, same.p_value) == (0, 0, 0, 1.0)


def test_a_worse_temperature_is_found_out_and_the_same_one_is_not():
    weights = resampling_weights(3000, draws=200)
    log_probs, labels = model(5, n=3000)
    good = [resample((log_probs / 1.5).log_softmax(1), labels, weights)]
    bad = [resample((log_probs * 3).log_softmax(1), labels, weights)]
    worse = pool_difference(bad, good, "nll", samples=3000)
    assert worse.value > 0
    assert worse.low > 0
    assert worse.p_value < 1e-6
    nearly = [resample((log_probs / 1.5001).log_softmax(1), labels, weights)]
    assert pool_difference(nearly, good, "ece", samples=3000).p_value > 0.01


def test_the_interval_covers_the_truth_about_95_times_in_100():
    # Known truth: accuracy 0.8 of simulated models whose seeds shift it by N(0, 0.02).
    generator = torch.Generator().manual_seed(0)
    covered, trials, n, seeds = 0, 200, 300, 4
    weights = resampling_weights(n, draws=100)
    for _ in range(trials):
        runs = []
        for _ in range(seeds):
            p = 0.8 + 0.02 * float(torch.randn(1, generator=generator))
            labels = (torch.rand(n, generator=generator) > p).long()
            runs.append(resample(torch.tensor([[0.9, 0.1]]).log().expand(n, 2), labels, weights))
        estimate = pool(runs, "accuracy", samples=n)
        covered += estimate.low <= 0.8 <= estimate.high
    assert covered / trials >= 0.92


def test_holm_matches_a_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]
