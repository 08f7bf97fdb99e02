"""The binned calibration errors: reference, torchmetrics, identities, published numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import multiclass_calibration_error

from calgrad.checks import InputError
from calgrad.metrics import adaptive_ece, classwise_ece, debiased_ece, ece, sweep_ece
from calgrad.metrics.binning import bin_sums, class_sums
from calgrad.metrics.calibration import debiased_square
from tests.metrics.samples import confidences, make
from tests.reference import metrics as reference

SHAPES = (st.integers(1, 60), st.integers(2, 9), st.integers(0, 1000), st.sampled_from(["float32", "float64"]))


@settings(deadline=None, max_examples=40)
@given(*SHAPES, st.integers(1, 25), st.sampled_from([0.1, 1.0, 30.0]))
def test_against_the_formulas(n, classes, seed, dtype, bins, scale):
    logits, labels = make(n, classes, seed=seed, dtype=getattr(torch, dtype), scale=scale)
    probs, y = logits.softmax(1), labels.numpy()
    confidence, is_correct = reference.top(probs.numpy(), y)
    for norm in ("l1", "l2", "max"):
        expected = reference.ece(confidence, is_correct, bins, norm)
        assert ece(probs, labels, bins=bins, norm=norm) == pytest.approx(expected, abs=1e-6)
    for average in ("classes", "prevalence"):
        expected = reference.classwise_ece(probs.numpy(), y, bins, prevalence=average == "prevalence")
        assert classwise_ece(probs, labels, bins=bins, average=average) == pytest.approx(expected, abs=1e-9)
    expected = reference.published_adaptive_ece(confidence, is_correct, bins)
    assert adaptive_ece(probs, labels, bins=bins, published=True) == pytest.approx(expected, abs=1e-9)
    square = debiased_square(bin_sums(torch.from_numpy(confidence), torch.from_numpy(is_correct), bins=bins))
    assert square == pytest.approx(reference.debiased_square(confidence, is_correct, bins), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_sweep_against_the_loop(seed):
    logits, labels = make(257, 4, seed=seed, dtype=torch.float64, scale=1.5)
    confidence, is_correct = reference.top(logits.softmax(1).numpy(), labels.numpy())
    assert sweep_ece(logits=logits, labels=labels) == pytest.approx(reference.sweep_ece(confidence, is_correct))


def test_sweep_ends_on_a_perfect_ranking_and_on_ties():
    probs = torch.linspace(0.5, 1, 3000, dtype=torch.float64)
    probs = torch.stack([probs, 1 - probs], 1)
    labels = (torch.arange(3000) < 1500).long()  # the less confident half is wrong
    assert 0.2 < sweep_ece(probs, labels) < 0.5
    tied = torch.tensor([[0.75, 0.25]]).repeat(8, 1)
    assert sweep_ece(tied, torch.zeros(8, dtype=torch.long)) == pytest.approx(0.25)


def test_golden_numbers(golden):
    """Published for this net: ECE 4.35 and 1.35 at T = 2.5, adaptive ECE 4.33 and 2.14."""
    logits, labels = golden["test_logits"], golden["test_labels"]
    cooler = torch.from_numpy(logits) / 2.5
    assert round(100 * ece(logits=logits, labels=labels), 3) == 4.354
    assert round(100 * ece(logits=cooler, labels=labels), 3) == 1.354
    assert round(100 * adaptive_ece(logits=logits, labels=labels, published=True), 2) == 4.33
    assert round(100 * adaptive_ece(logits=cooler, labels=labels, published=True), 2) == 2.14
    assert ece(logits=logits.astype(np.float64), labels=labels) == pytest.approx(0.0435433, abs=1e-7)


def test_against_torchmetrics_away_from_the_edges():
    logits, labels = make(2000, 5, scale=2)
    probs = logits.softmax(1)
    for norm in ("l1", "l2", "max"):
        theirs = multiclass_calibration_error(probs, labels, num_classes=5, n_bins=15, norm=norm)
        assert ece(probs, labels, norm=norm) == pytest.approx(float(theirs), abs=1e-5)


def test_by_hand():
    probs = [[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]
    labels = [0, 1, 0, 1]
    # (13/15, 14/15]: 0.9, 0.9, half right; (8/15, 9/15]: 0.6 right (0.6 is the edge 9/15); (10/15, 11/15]: 0.7 right
    assert ece(probs, labels) == pytest.approx((2 * 0.4 + 0.4 + 0.3) / 4)
    assert ece(probs, labels, norm="max") == pytest.approx(0.4)
    assert ece(probs, labels, bins=1) == pytest.approx(0.775 - 0.75)


def test_identities():
    logits, labels = make(3000, 6, scale=2)
    probs = logits.softmax(1)
    l1, l2, worst = (ece(probs, labels, norm=norm) for norm in ("l1", "l2", "max"))
    assert l1 <= l2 <= worst
    order = torch.randperm(3000)
    assert ece(probs[order], labels[order]) == pytest.approx(l1, rel=1e-12)
    classes = torch.randperm(6)
    assert classwise_ece(probs[:, classes], classes.argsort()[labels]) == pytest.approx(
        classwise_ece(probs, labels), rel=1e-12
    )
    gap = abs(float(probs.max(1).values.double().mean() - (probs.argmax(1) == labels).double().mean()))
    assert ece(probs, labels, bins=1) == pytest.approx(gap)
    assert l1 >= gap - 1e-12
    one_hot = torch.nn.functional.one_hot(labels, 6).float()
    for metric in (ece, adaptive_ece, classwise_ece, debiased_ece, sweep_ece):
        assert metric(one_hot, labels) == 0.0


def test_numpy_torch_and_lists_agree():
    logits, labels = make(50, 3, dtype=torch.float64)
    probs = logits.softmax(1)
    for metric in (ece, adaptive_ece, classwise_ece, debiased_ece, sweep_ece):
        value = metric(probs, labels)
        assert metric(probs.numpy(), labels.numpy()) == value
        assert metric(probs.tolist(), labels.tolist()) == value
        assert metric(np.asfortranarray(probs.numpy()), labels.numpy()[::-1].copy()[::-1]) == pytest.approx(value)
        assert metric(logits=logits, labels=labels) == pytest.approx(value, rel=1e-12)
        assert isinstance(value, float)


def test_a_label_of_probability_zero_counts():
    probs = torch.tensor([[1.0, 0.0, 0.0]]).repeat(4, 1)
    labels = torch.tensor([0, 0, 1, 1])
    given, hit = class_sums(probs, labels)
    assert hit.sum() == 4
    assert given.sum() == 4
    assert classwise_ece(probs, labels) == pytest.approx((0.5 + 0.5 + 0) / 3)


def test_class_sums_do_not_depend_on_the_block_size(monkeypatch):
    logits, labels = make(1000, 7)
    whole = class_sums(logits.softmax(1), labels)
    monkeypatch.setattr("calgrad.metrics.binning.rows_at_once", lambda tensor: 33)
    blocks = class_sums(logits.softmax(1), labels)
    assert torch.allclose(whole[0], blocks[0], rtol=1e-13)
    assert torch.equal(whole[1], blocks[1])


def test_the_debiased_square_is_unbiased_where_the_plain_one_is_not():
    squares, plain = [], []
    for seed in range(400):
        confidence, _ = confidences(300, seed=seed)
        right = np.random.default_rng(seed + 10_000).random(300) < confidence - 0.05
        sums = bin_sums(torch.from_numpy(confidence), torch.from_numpy(right), bins=10)
        squares.append(debiased_square(sums))
        plain.append(float((sums.count * sums.gap.square()).sum() / 300))
    error = np.std(squares) / 20
    assert abs(np.mean(squares) - 0.05**2) < 4 * error
    assert np.mean(plain) - 0.05**2 > 10 * error


def test_bad_options_are_refused():
    probs, labels = [[0.5, 0.5]], [0]
    with pytest.raises(InputError, match="`average` must be one of"):
        classwise_ece(probs, labels, average="weighted")
    with pytest.raises(InputError, match="`bins`"):
        classwise_ece(probs, labels, bins=0)
    with pytest.raises(InputError, match="`norm`"):
        sweep_ece(probs, labels, norm="l7")
