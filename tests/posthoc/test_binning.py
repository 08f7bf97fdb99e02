"""Isotonic regression, histogram binning and BBQ against references, scikit-learn and what defines them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrad.posthoc import make_calibrator
from calgrad.posthoc.binning import cuts, edges_between, middles
from tests.posthoc.conftest import sample
from tests.reference import posthoc as reference


def binary(n=400, seed=0):
    logits, labels = sample(n, 2, seed=seed)
    score = (2 * (logits[:, 1] - logits[:, 0])).numpy()
    return np.stack([0 * score, score], axis=1), labels.numpy(), score


def test_isotonic_is_pool_adjacent_violators_at_the_samples():
    logits, labels, score = binary()
    mine = make_calibrator("isotonic", smoothing=0).fit(logits, labels)(logits)[:, 1].numpy()
    order = np.argsort(score)
    assert mine[order] == pytest.approx(reference.pool_adjacent_violators(labels[order]), abs=1e-12)


def test_isotonic_is_scikit_learns_between_and_beyond_the_samples():
    from sklearn.isotonic import IsotonicRegression

    logits, labels, score = binary()
    theirs = IsotonicRegression(out_of_bounds="clip").fit(score, labels)
    mine = make_calibrator("isotonic", smoothing=0).fit(logits, labels)
    at = np.linspace(-40, 40, 1001)
    probs = mine(np.stack([0 * at, at], axis=1))[:, 1].numpy()
    assert probs == pytest.approx(theirs.predict(at), abs=1e-12)
    assert (np.diff(probs) >= 0).all()


@pytest.mark.filterwarnings("ignore::calgrad.posthoc.CalibrationWarning")
@settings(deadline=None, max_examples=25)
@given(n=st.integers(1, 80), seed=st.integers(0, 10**6), levels=st.integers(1, 12))
def test_isotonic_rises_with_the_log_odds_ties_included(n, seed, levels):
    generator = torch.Generator().manual_seed(seed)
    score = torch.randint(levels, (n,), generator=generator).double()
    labels = torch.randint(2, (n,), generator=generator)
    probs = make_calibrator("isotonic").fit(torch.stack([0 * score, score], 1), labels)(
        torch.stack([0 * score, score], 1)
    )
    ordered = probs[score.argsort(), 1]
    assert (ordered.diff() >= -1e-12).all()


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_histogram_answers_with_the_share_of_positives_in_the_bin(scheme):
    logits, labels, score = binary()
    calibrator = make_calibrator("histogram", bins=10, scheme=scheme, smoothing=0).fit(logits, labels)
    probs = calibrator(logits)[:, 1].numpy()
    p = 1 / (1 + np.exp(-score))
    if scheme == "width":
        index = np.ceil(p * 10).astype(int) - 1
    else:
        index = np.argsort(np.argsort(score)) * 10 // 400
    for cell in np.unique(index):
        assert probs[index == cell] == pytest.approx(labels[index == cell].mean(), abs=1e-12)


def test_an_edge_belongs_to_the_bin_below_it_and_an_empty_bin_answers_with_its_middle():
    score = torch.logit(torch.tensor([0.05, 0.2, 0.200001, 0.95], dtype=torch.float64))
    logits = torch.stack([0 * score, score], 1)
    calibrator = make_calibrator("histogram", bins=5, smoothing=0).fit(logits, [1, 1, 0, 1])
    assert calibrator(logits)[:, 1].tolist() == pytest.approx([1, 1, 0, 1])
    empty = torch.logit(torch.tensor([0.5, 0.7], dtype=torch.float64))
    assert calibrator(torch.stack([0 * empty, empty], 1))[:, 1].tolist() == pytest.approx([0.5, 0.7])


def test_smoothing_is_one_sample_spread_over_the_classes_and_zero_rows_are_uniform():
    logits, labels = sample(200, 3)
    labels = torch.where(labels == 2, 1, labels)
    for name in ("histogram", "isotonic"):
        plain = make_calibrator(name, smoothing=0).fit(logits, labels)
        smooth = make_calibrator(name, smoothing=1).fit(logits, labels)
        assert (plain(logits)[:, 2] == 0).all()
        assert (smooth(logits)[:, 2] > 0).all()
        assert smooth.log_probs(logits).isfinite().all()
        assert (smooth(logits) - plain(logits)).abs().max() < 0.02
    none = make_calibrator("histogram", bins=2, smoothing=0).fit(logits, labels)
    none.parameters = none.parameters | {"values": torch.zeros_like(none.parameters["values"])}
    assert torch.allclose(none(logits), torch.full_like(logits, 1 / 3))


def test_bbq_is_the_slow_average_of_all_its_models():
    logits, labels, score = binary(60)
    at = np.linspace(-6, 6, 41)
    mine = make_calibrator("bbq", smoothing=0).fit(logits, labels)(np.stack([0 * at, at], axis=1))[:, 1].numpy()
    slow = reference.bbq(score, labels, at)
    assert mine == pytest.approx(slow, abs=1e-4)  # models of less than 1e-6 of the best one's weight are left out


@pytest.mark.filterwarnings("ignore::calgrad.posthoc.CalibrationWarning")
def test_bbq_of_a_calibrated_model_is_about_the_diagonal():
    logits, labels = sample(20_000, 2)
    p = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)
    score = torch.logit(p)
    answered = make_calibrator("bbq").fit(logits, labels)(torch.stack([0 * score, score], 1))[:, 1]
    assert (answered - p).abs().max() < 0.06


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 60), bins=st.integers(1, 20), levels=st.integers(1, 30), seed=st.integers(0, 10**6))
def test_equal_mass_cuts_keep_ties_together(n, bins, levels, seed):
    ordered = torch.randint(levels, (n,), generator=torch.Generator().manual_seed(seed)).double().sort().values
    where = cuts(ordered, bins)
    edges = edges_between(ordered, where)
    assert len(where) <= bins - 1
    assert (ordered[where - 1] < ordered[where]).all()
    index = torch.bucketize(ordered, edges)
    counts = torch.bincount(index, minlength=len(edges) + 1)
    bounds = torch.cat([torch.zeros(1), where.double(), torch.tensor([float(n)])])
    assert torch.equal(counts.double(), bounds.diff().double())
    if len(ordered.unique()) == n:
        assert counts.max() - counts.min() <= 1 or bins > n


def test_neighbouring_floats_stay_apart():
    low = torch.tensor(1.0, dtype=torch.float64)
    ordered = torch.stack([low, torch.nextafter(low, low + 1)])
    assert torch.bucketize(ordered, edges_between(ordered, cuts(ordered, 2))).tolist() == [0, 1]


def test_middles_are_of_probabilities():
    edges = torch.logit(torch.tensor([0.2, 0.6], dtype=torch.float64))
    assert middles(edges).tolist() == pytest.approx([0.1, 0.4, 0.8])


def test_one_versus_rest_is_k_binary_problems_normalised():
    logits, labels = sample(500, 3)
    whole = make_calibrator("histogram", smoothing=0).fit(2 * logits, labels)(2 * logits).numpy()
    scores = reference.log_odds(2 * logits.numpy())
    each = []
    for k in range(3):
        pair = np.stack([0 * scores[:, k], scores[:, k]], axis=1)
        each.append(make_calibrator("histogram", smoothing=0).fit(pair, (labels == k).long())(pair)[:, 1].numpy())
    q = np.stack(each, axis=1)
    assert whole == pytest.approx(q / q.sum(axis=1, keepdims=True), abs=1e-9)
