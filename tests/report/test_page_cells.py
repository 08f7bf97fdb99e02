"""The aggregates that the browser rebins: exactly the bins of the library, whatever the confidences."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrad.metrics.binning import bin_sums, error_of_sums
from calgrad.report.cells import BIN_COUNTS, SCHEMES, make_cells


@pytest.mark.parametrize("scheme", list(SCHEMES))
@settings(deadline=None, max_examples=40)
@given(
    values=st.lists(
        st.one_of(st.floats(0, 1, width=32), st.sampled_from([0.0, 0.2, 0.5, 0.6, 1.0])), min_size=1, max_size=60
    ),
    double=st.booleans(),
    seed=st.integers(0, 99),
)
def test_merged_cells_are_the_bins(scheme, values, double, seed):
    confidence = torch.tensor(values, dtype=torch.float64 if double else torch.float32)
    hit = torch.rand(len(values), generator=torch.Generator().manual_seed(seed)) < 0.5
    cells = make_cells(confidence, hit, scheme=scheme)
    for bins in BIN_COUNTS:
        merged = cells.bins(bins)
        own = bin_sums(confidence, hit, bins=bins, binning=SCHEMES[scheme])
        assert torch.equal(merged.count, own.count)
        assert torch.equal(merged.correct, own.correct)
        torch.testing.assert_close(merged.confidence, own.confidence)
        assert error_of_sums(merged) == pytest.approx(error_of_sums(own), abs=1e-12)


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_size_does_not_grow_with_the_samples(scheme):
    sizes = []
    for n in (10_000, 300_000):
        confidence = torch.rand(n, generator=torch.Generator().manual_seed(0)) ** 0.2
        hit = torch.rand(n, generator=torch.Generator().manual_seed(1)) < confidence
        sizes.append(len(json.dumps(make_cells(confidence, hit, scheme=scheme).to_dict())))
    assert sizes[1] < 1.3 * sizes[0] < 4000


def test_variance_is_that_of_calibrated_labels():
    confidence = torch.tensor([0.5, 0.9, 0.9])
    cells = make_cells(confidence, torch.tensor([True, True, False]), scheme="width")
    assert float(cells.variance.sum()) == pytest.approx(0.25 + 2 * 0.09)
