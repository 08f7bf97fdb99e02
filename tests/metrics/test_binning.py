"""Which bin a sample falls into, and that sums do not drift."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import multiclass_calibration_error

from calgrad.checks import InputError
from calgrad.metrics import binning
from calgrad.metrics.binning import bin_edges, bin_index, bin_sums, error_of_sums, ordered_pairs, right_index, top_label
from tests.metrics.samples import make
from tests.reference import metrics as reference

DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bins", [1, 2, 10, 15, 20, 33])
def test_an_edge_belongs_to_the_bin_below_it(bins, dtype):
    edge = torch.tensor([i / bins for i in range(1, bins + 1)], dtype=torch.float64).to(dtype)
    above = torch.nextafter(edge, torch.full_like(edge, 2))
    edges = bin_edges(edge, bins=bins)
    expected = torch.arange(bins)
    assert torch.equal(bin_index(edge, edges), expected)
    assert torch.equal(bin_index(above, edges), (expected + 1).clamp(max=bins - 1))
    assert bin_index(torch.zeros(1, dtype=dtype), edges).item() == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_fast_index_is_the_searched_one(dtype):
    for bins in range(1, 80):
        edge = torch.tensor([i / bins for i in range(bins + 1)], dtype=torch.float64).to(dtype)
        up, down = torch.nextafter(edge, torch.full_like(edge, 2)), torch.nextafter(edge, torch.full_like(edge, -1))
        values = torch.cat([edge, up, down.clamp(min=0), torch.rand(200, dtype=dtype)])
        assert torch.equal(right_index(values, bins).long(), bin_index(values, bin_edges(values, bins=bins))), bins


def test_the_default_needs_no_search():
    assert binning._product_finds_bins(15, torch.float32)
    assert not binning._product_finds_bins(10, torch.float32)  # 0.3 * 10 rounds the wrong way: it must be searched


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_left_is_torchmetrics_with_its_extra_bin_for_one(norm):
    logits, labels = make(400, 4, scale=40)  # saturated: many confidences are exactly 1.0
    probs = logits.softmax(1)
    assert (probs.max(1).values == 1).any()
    sums = bin_sums(*top_label(probs, labels), binning="left")
    assert len(sums.count) == 16
    assert sums.count[15] == (probs.max(1).values == 1).sum()
    theirs = multiclass_calibration_error(probs, labels, num_classes=4, n_bins=15, norm=norm)
    assert error_of_sums(sums, norm=norm) == pytest.approx(float(theirs), abs=2e-6)


def test_the_published_adaptive_bins_lose_the_least_confident_sample():
    logits, labels = make(317, 6)
    confidence, is_correct = top_label(logits.softmax(1), labels)
    published = bin_sums(confidence, is_correct, binning="published-adaptive")
    ours = bin_sums(confidence, is_correct, binning="adaptive")
    assert (published.count.sum(), published.total) == (316, 317)
    assert ours.count.sum() == 317
    expected = reference.published_adaptive_ece(confidence.numpy(), is_correct.numpy())
    assert error_of_sums(published) == pytest.approx(expected, abs=1e-9)
    edges = bin_edges(confidence, binning="published-adaptive")
    index = bin_index(confidence, edges, binning="published-adaptive")
    assert (index == -1).sum() == 1
    assert torch.equal(torch.bincount(index[index >= 0], minlength=15).double(), published.count)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from([0.2, 0.25, 0.4, 0.6, 1.0]) | st.floats(0.01, 1), min_size=1, max_size=60),
    st.integers(1, 20),
)
def test_adaptive_bins_hold_every_sample_and_never_divide_equals(values, bins):
    confidence = torch.tensor(values, dtype=torch.float64)
    edges = bin_edges(confidence, bins=bins, binning="adaptive")
    index = bin_index(confidence, edges, binning="adaptive")
    sums = bin_sums(confidence, torch.ones_like(confidence, dtype=torch.bool), bins=bins, binning="adaptive")
    assert torch.equal(torch.bincount(index, minlength=bins).double(), sums.count)
    assert sums.count.sum() == len(values)
    for value in set(values):
        assert len(index[confidence == value].unique()) == 1


def test_equal_mass_means_equal_mass():
    sums = bin_sums(torch.rand(1500, dtype=torch.float64), torch.zeros(1500, dtype=torch.bool), binning="adaptive")
    assert sums.count.sub(100).abs().max() <= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_ordered_pairs_sorts_both(dtype):
    values = torch.rand(1000, dtype=dtype).mul(20).round().div(20)
    flags = torch.rand(1000) < 0.5
    ordered, moved = ordered_pairs(values, flags)
    order = np.lexsort((flags.numpy(), values.numpy()))
    assert torch.equal(ordered, values[order])
    assert torch.equal(moved, flags[order])


def test_two_halves_add_up():
    logits, labels = make(999)
    confidence, is_correct = top_label(logits.softmax(1), labels)
    whole = bin_sums(confidence, is_correct)
    parts = bin_sums(confidence[:400], is_correct[:400]) + bin_sums(confidence[400:], is_correct[400:])
    assert torch.equal(parts.count, whole.count)
    assert torch.allclose(parts.confidence, whole.confidence, rtol=1e-14)
    assert parts.total == 999


def test_sums_do_not_drift_beyond_two_to_the_24():
    n = 2**24 + 2**22  # a float32 sum of ones stops at 2**24
    confidence = torch.full((1,), 0.7).expand(n)
    is_correct = torch.zeros(n, dtype=torch.bool)
    is_correct[: n // 2] = True
    sums = bin_sums(confidence, is_correct)
    assert sums.count[10] == n
    assert error_of_sums(sums) == pytest.approx(float(torch.tensor(0.7)) - 0.5, rel=1e-12)


def test_unknown_options_are_refused():
    with pytest.raises(InputError, match="`binning` must be one of 'right'"):
        bin_sums(torch.ones(3), torch.ones(3, dtype=torch.bool), binning="middle")
    with pytest.raises(InputError, match="`bins` must be a whole number"):
        bin_sums(torch.ones(3), torch.ones(3, dtype=torch.bool), bins=0)
    with pytest.raises(InputError, match="`norm` must be one of"):
        error_of_sums(bin_sums(torch.ones(3), torch.ones(3, dtype=torch.bool)), norm="l3")
