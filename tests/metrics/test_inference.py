"""The noise floor and the test of calibration, against labels drawn one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calgrad.checks import InputError
from calgrad.metrics import calibration_test, ece, noise_floor
from calgrad.metrics.binning import bin_sums, error_of_sums
from calgrad.metrics.inference import CELLS_PER_BIN, cells_of, judge_cells
from tests.metrics.samples import confidences, make
from tests.reference import metrics as reference


@pytest.mark.parametrize("kind", ["spread", "saturated"])
def test_the_floor_is_what_drawn_labels_show(kind):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.2, 1, 2000) if kind == "spread" else 1 - 10 ** rng.uniform(-5, -0.3, 2000)
    drawn = reference.null_eces(confidence, 1500, rng)
    floor = noise_floor(confidence=confidence, draws=4000)
    assert floor.mean == pytest.approx(drawn.mean(), rel=0.02)
    assert floor.sd == pytest.approx(drawn.std(), rel=0.06)
    assert floor.high == pytest.approx(np.quantile(drawn, 0.95), rel=0.03)
    closed = noise_floor(confidence=confidence, method="closed-form")
    assert closed.mean == pytest.approx(drawn.mean(), rel=0.04)
    assert closed.sd == pytest.approx(drawn.std(), rel=0.06)
    assert closed.high == pytest.approx(np.quantile(drawn, 0.95), rel=0.05)


def test_the_closed_form_by_hand():
    confidence = torch.tensor([0.75] * 100 + [0.9] * 300, dtype=torch.float64)
    floor = noise_floor(confidence=confidence, method="closed-form")
    variance = np.array([100 * 0.75 * 0.25, 300 * 0.9 * 0.1])
    assert floor.mean == pytest.approx(np.sqrt(2 / np.pi * variance).sum() / 400, rel=1e-12)
    assert floor.sd == pytest.approx(np.sqrt((1 - 2 / np.pi) * variance.sum()) / 400, rel=1e-12)
    assert floor.draws == 0


def test_the_golden_floor(golden):
    """A calibrated net with the confidences of the golden one at T = 2.5 still shows ECE 0.37 % (sd 0.10)."""
    logits = torch.from_numpy(golden["test_logits"]) / 2.5
    confidence = logits.softmax(1).max(1).values.double().numpy()
    drawn = reference.null_eces(confidence, 500, np.random.default_rng(0))
    for method in ("monte-carlo", "closed-form"):
        floor = noise_floor(logits=logits, method=method)
        assert floor.mean == pytest.approx(0.00374, abs=1e-4)
        assert floor.mean == pytest.approx(drawn.mean(), rel=0.04)
        assert floor.sd == pytest.approx(0.00102, abs=6e-5)


def test_the_floor_shrinks_with_the_root_of_n_and_grows_with_bins():
    confidence = np.random.default_rng(0).uniform(0.3, 1, 40_000)
    floors = [noise_floor(confidence=confidence[:n], method="closed-form").mean for n in (2500, 10_000, 40_000)]
    assert floors[0] / floors[1] == pytest.approx(2, rel=0.02)
    assert floors[1] / floors[2] == pytest.approx(2, rel=0.02)
    assert noise_floor(confidence=confidence, bins=60).mean > 1.7 * noise_floor(confidence=confidence, bins=15).mean


def test_certainty_has_no_floor():
    for method in ("monte-carlo", "closed-form"):
        floor = noise_floor([[1.0, 0.0]] * 10, method=method)
        assert (floor.mean, floor.sd, floor.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("binning", ["right", "adaptive"])
def test_the_test_judges_the_metric_it_names(norm, binning):
    logits, labels = make(1500, 4, scale=1.0)
    honest = calibration_test(logits=logits, labels=labels, norm=norm, binning=binning, draws=500)
    assert honest.value == pytest.approx(ece(logits=logits, labels=labels, norm=norm, binning=binning), rel=1e-9)
    assert honest.p_value > 0.02
    false = calibration_test(logits=2 * logits, labels=labels, norm=norm, binning=binning, draws=500)
    if norm != "max":  # one nearly empty bin decides the largest gap, so it has little power
        assert false.p_value == pytest.approx(1 / 501)
        assert false.value > false.floor.high


def test_p_values_are_uniform_under_the_null():
    p = []
    for seed in range(200):
        confidence, is_correct = confidences(400, seed=seed)
        cells = cells_of(torch.from_numpy(confidence), torch.from_numpy(is_correct))
        p.append(judge_cells(cells, draws=199, seed=seed).p_value)
    assert np.mean(p) == pytest.approx(0.5, abs=0.07)
    assert np.mean(np.array(p) <= 0.05) < 0.1
    assert np.mean(np.array(p) <= 0.5) == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize("binning", ["right", "adaptive"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cells_make_up_the_bins(binning, dtype):
    logits, labels = make(700, 4, dtype=dtype, scale=3)
    confidence, is_correct = logits.softmax(1).max(1).values, logits.argmax(1) == labels
    cells = cells_of(confidence, is_correct, bins=15, binning=binning)
    sums = bin_sums(confidence, is_correct, binning=binning)
    assert cells.count.shape == (15, CELLS_PER_BIN)
    assert torch.equal(cells.bins.count, sums.count.double())
    assert torch.equal(cells.bins.correct, sums.correct)
    assert error_of_sums(cells.bins) == pytest.approx(error_of_sums(sums), rel=1e-12)


def test_seeds_decide():
    confidence = np.linspace(0.3, 1, 500)
    assert noise_floor(confidence=confidence, seed=3) == noise_floor(confidence=confidence, seed=3)
    assert noise_floor(confidence=confidence, seed=3) != noise_floor(confidence=confidence, seed=4)


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="exactly one of"):
        noise_floor([[0.5, 0.5]], confidence=[0.5])
    with pytest.raises(InputError, match=r"must lie in \[0, 1\]"):
        noise_floor(confidence=[0.5, 1.5])
    with pytest.raises(InputError, match="floating-point vector"):
        noise_floor(confidence=[[0.5, 0.5]])
    with pytest.raises(InputError, match="closed form"):
        noise_floor(confidence=[0.5], method="closed-form", norm="l2")
    with pytest.raises(InputError, match="`draws`"):
        noise_floor(confidence=[0.5], draws=0)
