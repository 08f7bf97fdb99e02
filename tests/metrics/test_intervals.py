"""Intervals: against scipy where they are known, by coverage where they are ours."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from calgrad.checks import InputError
from calgrad.metrics import accuracy, bootstrap, brier, ece, nll
from calgrad.metrics.inference import cells_of
from calgrad.metrics.intervals import ece_interval, mean_interval, resampled_errors, wilson_interval
from tests.metrics.samples import confidences, make
from tests.reference import metrics as reference


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (10, 10), (7, 10), (950, 1000)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_wilson_is_scipys(hits, count, level):
    theirs = scipy.stats.binomtest(hits, count).proportion_ci(level, method="wilson")
    ours = wilson_interval(hits, count, level=level)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_the_interval_of_a_mean_is_the_normal_one():
    values = np.random.default_rng(0).exponential(size=400)
    ours = mean_interval(values.mean(), values.var(), 400)
    theirs = scipy.stats.norm.interval(0.95, values.mean(), values.std(ddof=1) / 20)
    assert (ours.low, ours.high) == pytest.approx(theirs, rel=1e-12)


def test_each_interval_holds_its_own_metric():
    logits, labels = make(1000, 5, scale=2)
    found = bootstrap(logits=logits, labels=labels, draws=200)
    assert list(found) == ["accuracy", "nll", "brier", "ece"]
    for metric in (accuracy, nll, brier, ece):
        interval = found[metric.__name__]
        assert interval.value == pytest.approx(metric(logits=logits, labels=labels), rel=1e-6)
        assert interval.low < interval.value < interval.high
    assert list(bootstrap(logits=logits, labels=labels, metrics=["brier"])) == ["brier"]
    narrow = bootstrap(logits=logits, labels=labels, draws=400, level=0.5)
    assert all(narrow[m].high - narrow[m].low < found[m].high - found[m].low for m in found)


def test_resampling_cells_is_resampling_rows():
    rng = np.random.default_rng(0)
    confidence, _ = confidences(1500)
    is_correct = rng.random(1500) < confidence - 0.05
    rows = reference.resampled_eces(confidence, is_correct, 1500, rng)
    cells = resampled_errors(cells_of(torch.from_numpy(confidence), torch.from_numpy(is_correct)), draws=3000, seed=1)
    assert cells.mean() == pytest.approx(rows.mean(), rel=0.02)
    assert cells.std() == pytest.approx(rows.std(), rel=0.07)


@pytest.mark.parametrize("gap", [0.0, 0.02, 0.06])
def test_the_ece_interval_covers_where_the_percentile_one_fails(gap):
    """Truth: confidence - accuracy = gap everywhere, so the ECE is the gap."""
    covered = percentile = 0
    for seed in range(150):
        confidence, _ = confidences(1000, seed=seed, low=0.4)
        right = np.random.default_rng(seed + 999).random(1000) < confidence - gap
        cells = cells_of(torch.from_numpy(confidence), torch.from_numpy(right))
        interval = ece_interval(cells, draws=200, seed=seed)
        covered += interval.low <= gap + 1e-12 and gap <= interval.high
        low, high = np.quantile(resampled_errors(cells, draws=200, seed=seed), [0.025, 0.975])
        percentile += low <= gap <= high
    assert covered / 150 >= 0.9
    if gap == 0:
        assert percentile == 0


def test_zero_is_inside_exactly_when_calibration_is_not_rejected():
    logits, labels = make(2000, 4)
    assert bootstrap(logits=logits, labels=labels)["ece"].low == 0.0
    assert bootstrap(logits=3 * logits, labels=labels)["ece"].low > 0.05


def test_seeds_decide():
    logits, labels = make(300, 4, scale=2)
    one, same, other = (bootstrap(logits=logits, labels=labels, seed=s)["ece"] for s in (1, 1, 2))
    assert one == same
    assert one != other


def test_an_infinite_nll_has_an_infinite_interval():
    found = bootstrap([[1.0, 0.0], [0.5, 0.5]], [1, 0])["nll"]
    assert found.value == found.low == found.high == float("inf")


def test_bad_options_are_refused():
    with pytest.raises(InputError, match=r"unknown metric 'eec'.*Did you mean 'ece'"):
        bootstrap([[0.5, 0.5]], [0], metrics=["eec"])
    with pytest.raises(InputError, match="`level` must lie inside"):
        bootstrap([[0.5, 0.5]], [0], level=95)
