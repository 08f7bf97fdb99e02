"""The reliability curve: what is in each bin, and its interval."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats
import torch

from calgrad.checks import InputError
from calgrad.metrics import ece, reliability
from tests.metrics.samples import make
from tests.reference import metrics as reference


@pytest.mark.parametrize("binning", ["right", "adaptive"])
def test_the_curve_holds_the_ece(binning):
    logits, labels = make(900, 4, scale=2, dtype=torch.float64)
    curve = reliability(logits=logits, labels=labels, bins=10, binning=binning)
    used = curve.count > 0
    assert curve.count.sum() == 900
    error = (curve.count[used] * np.abs(curve.gap[used])).sum() / 900
    assert error == pytest.approx(ece(logits=logits, labels=labels, bins=10, binning=binning), rel=1e-9)
    assert np.isnan(curve.accuracy[~used]).all()
    assert ((curve.low <= curve.accuracy) & (curve.accuracy <= curve.high))[used].all()


def test_each_bin_against_a_mask():
    logits, labels = make(400, 3, dtype=torch.float64)
    confidence, is_correct = reference.top(logits.softmax(1).numpy(), labels.numpy())
    curve = reliability(logits=logits, labels=labels, bins=5, level=0.9)
    assert curve.edges == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    for i in range(5):
        inside = (confidence > curve.edges[i]) & (confidence <= curve.edges[i + 1])
        assert curve.count[i] == inside.sum()
        if inside.any():
            assert curve.confidence[i] == pytest.approx(confidence[inside].mean())
            assert curve.accuracy[i] == pytest.approx(is_correct[inside].mean())
            ends = scipy.stats.binomtest(int(is_correct[inside].sum()), int(inside.sum())).proportion_ci(0.9, "wilson")
            assert (curve.low[i], curve.high[i]) == pytest.approx((ends.low, ends.high))


def test_it_goes_to_json():
    curve = reliability([[0.9, 0.1], [0.8, 0.2]], [0, 1], bins=3)
    plain = json.loads(json.dumps(curve.to_dict(), allow_nan=False))
    assert plain["count"] == [0, 0, 2]
    assert plain["accuracy"] == [None, None, 0.5]


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="`binning` must be one of 'right', 'adaptive'"):
        reliability([[0.5, 0.5]], [0], binning="left")
