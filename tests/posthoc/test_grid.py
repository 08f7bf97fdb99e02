"""The paper's grid: the answer of the full loop, found with a fraction of its work."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrad.checks import InputError
from calgrad.metrics import ece
from calgrad.posthoc import CalibrationWarning, make_calibrator
from calgrad.posthoc.grid import GRID, _first_minimum, grid_temperature
from tests.posthoc.conftest import sample
from tests.reference import posthoc as reference


def test_golden(golden):
    calibrator = make_calibrator("temperature-ece").fit(golden["val_logits"], golden["val_labels"])
    assert calibrator.temperature == 2.5
    probs = calibrator(golden["test_logits"])
    assert 100 * ece(probs, golden["test_labels"]) == pytest.approx(1.354, abs=5e-4)


def test_the_grid_is_the_papers():
    assert len(GRID) == 100
    assert GRID[0] == 0.1
    assert GRID[-1] == 10.0
    assert np.diff(GRID) == pytest.approx(0.1)


@settings(deadline=None, max_examples=20)
@given(n=st.integers(1, 120), classes=st.integers(2, 6), seed=st.integers(0, 10**6), factor=st.floats(0.05, 20))
def test_the_slow_loop_finds_the_same(n, classes, seed, factor):
    logits, labels = sample(n, classes, seed=seed)
    z = factor * logits
    found = grid_temperature(z, labels)
    slow = reference.grid_temperature(z.numpy(), labels.numpy())
    if found != slow:  # only where rounding decides between equals
        errors = [reference.ece(np.exp(reference.log_softmax(z.numpy() / t)), labels.numpy()) for t in (found, slow)]
        assert errors[0] == pytest.approx(errors[1], abs=1e-12)


def test_float32_and_many_blocks_agree_with_the_metric():
    logits, labels = sample(60_000, 10, dtype=torch.float32)
    z = 2.2 * logits
    found = grid_temperature(z, labels)
    errors = {t: ece(logits=z / t, labels=labels) for t in GRID}
    assert errors[found] == pytest.approx(min(errors.values()), abs=1e-7)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40))
def test_the_walk_never_misses_the_first_minimum(pairs):
    """Any values above |bias|, for any falling bias."""
    bias = sorted((b - 0.5 for b, _ in pairs), reverse=True)
    values = [abs(b) + extra for b, (_, extra) in zip(bias, pairs)]
    seen = []

    def measure(index):
        seen.append(index)
        return values[index], bias[index]

    assert _first_minimum(measure, len(values)) == int(np.argmin(values))


def test_it_looks_at_a_fraction_of_the_grid():
    logits, labels = sample(20_000, 10)
    bias = {}

    def measure(index):
        confidence, prediction = (2 * logits / GRID[index]).softmax(1).max(1)
        hit = prediction == labels
        bias[index] = float(confidence.mean() - hit.double().mean())
        return ece(logits=2 * logits / GRID[index], labels=labels), bias[index]

    _first_minimum(measure, 100)
    assert len(bias) < 25


def test_own_grid_in_any_order_and_bad_grids():
    logits, labels = sample(500, 3)
    with pytest.warns(CalibrationWarning):
        assert make_calibrator("temperature-ece", grid=[8.0, 4.0]).fit(logits, labels).temperature == 4.0
    for grid in ([], [0.0, 1.0], [-1.0]):
        with pytest.raises(InputError, match="grid"):
            make_calibrator("temperature-ece", grid=grid)
