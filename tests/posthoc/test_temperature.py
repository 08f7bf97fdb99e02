"""The exact temperature: references, an independent library, identities, and the two ends."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from calgrad.posthoc import CalibrationWarning, make_calibrator, solve_temperature
from calgrad.posthoc.temperature import Moments
from tests.posthoc.conftest import sample
from tests.reference import posthoc as reference


def test_golden(golden):
    calibrator = make_calibrator("temperature").fit(golden["val_logits"], golden["val_labels"])
    assert calibrator.temperature == pytest.approx(2.498, abs=5e-4)
    assert calibrator.report.nll_after == pytest.approx(0.179, abs=5e-4)
    log_probs = calibrator.log_probs(golden["test_logits"]).double().numpy()
    assert reference.nll(log_probs, golden["test_labels"]) == pytest.approx(0.204, abs=5e-4)


@pytest.mark.parametrize(("n", "classes"), [(50, 2), (300, 5), (3000, 10), (700, 1000)])
def test_scipy_finds_the_same(n, classes):
    logits, labels = sample(n, classes)
    z = 2.5 * logits.numpy()
    found = minimize_scalar(
        lambda u: reference.nll(reference.log_softmax(z / math.exp(u)), labels.numpy()),
        bounds=(-3, 4), method="bounded", options={"xatol": 1e-10},
    )  # fmt: skip
    optimum = solve_temperature(torch.from_numpy(z), labels)
    assert math.log(optimum.temperature) == pytest.approx(found.x, abs=1e-6)
    assert optimum.nll == pytest.approx(found.fun, abs=1e-12)
    assert optimum.nll_at_one == pytest.approx(reference.nll(reference.log_softmax(z), labels.numpy()), abs=1e-12)


def test_scikit_learn_finds_the_same():
    calibration = pytest.importorskip("sklearn.calibration")
    if not hasattr(calibration, "_TemperatureScaling"):
        pytest.skip("this scikit-learn has no temperature scaling")
    logits, labels = sample(2000, 4)
    theirs = calibration._TemperatureScaling().fit(3 * logits.numpy(), labels.numpy())
    assert solve_temperature(3 * logits, labels).temperature == pytest.approx(1 / theirs.beta_, rel=1e-4)


def test_derivatives():
    logits, labels = sample(40, 4)
    a = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    value = torch.nn.functional.cross_entropy(a * logits, labels)
    (slope,) = torch.autograd.grad(value, a, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, a)
    moments = Moments.of(logits, labels, 0.7)
    assert moments.nll == pytest.approx(value.item(), abs=1e-13)
    assert moments.slope == pytest.approx(slope.item(), abs=1e-13)
    assert moments.curvature == pytest.approx(curvature.item(), abs=1e-12)
    assert moments.slope_at_zero == pytest.approx(Moments.of(logits, labels, 0.0).slope, abs=1e-13)
    assert moments.slope_at_infinity == pytest.approx(Moments.of(logits, labels, 1e6).slope, abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(
    scale=st.floats(-6, 6).map(lambda e: 10.0**e),
    n=st.integers(5, 200),
    classes=st.integers(2, 12),
    seed=st.integers(0, 10**6),
    shift=st.floats(-50, 50),
)
def test_scaling_logits_scales_the_temperature(scale, n, classes, seed, shift):
    logits, labels = sample(n, classes, seed=seed)
    plain = solve_temperature(logits, labels)
    assume(not plain.note)
    scaled = solve_temperature(scale * logits, labels)
    assert scaled.temperature == pytest.approx(scale * plain.temperature, rel=1e-9)
    assert scaled.nll == pytest.approx(plain.nll, abs=1e-10)
    shifted = solve_temperature(logits + shift, labels)
    assert shifted.temperature == pytest.approx(plain.temperature, rel=1e-8)
    assert Moments.of(logits, labels, 1 / plain.temperature).slope == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("n", [200, 300_000])
def test_narrow_dtypes_lose_nothing_but_their_own_rounding(dtype, n):
    logits, labels = sample(n, 5)
    narrow = (2 * logits).to(dtype)
    of_narrow = make_calibrator("temperature").fit(narrow, labels).temperature
    of_wide = make_calibrator("temperature").fit(narrow.double(), labels).temperature
    assert of_narrow == pytest.approx(of_wide, rel=1e-12)


def test_known_temperature_is_recovered():
    logits, labels = sample(200_000, 5)
    for truth in (0.5, 1.0, 3.0):
        found = solve_temperature(truth * logits, labels).temperature
        assert found == pytest.approx(truth, rel=0.01)  # the sd of the estimate is about 0.3 %


def test_the_optimum_is_a_fixed_point_and_keeps_predictions():
    logits, labels = sample(1000, 6)
    calibrator = make_calibrator("temperature").fit(4 * logits, labels)
    again = solve_temperature(4 * logits / calibrator.temperature, labels)
    assert again.temperature == pytest.approx(1, abs=1e-9)
    assert torch.equal(calibrator(4 * logits).argmax(1), logits.argmax(1))


def test_every_prediction_right_is_an_optimum_at_zero():
    logits, _ = sample(1000, 4)
    labels = logits.argmax(1)
    with pytest.warns(CalibrationWarning, match="T = 0: every prediction on these samples is right"):
        calibrator = make_calibrator("temperature").fit(logits, labels)
    assert 0 < calibrator.temperature < 1
    assert not calibrator.report.converged
    assert calibrator.report.nll_after == pytest.approx(math.log1p(1 / 1001), rel=1e-6)
    assert calibrator(logits).isfinite().all()
    with pytest.warns(CalibrationWarning):  # confident enough already: left alone
        assert make_calibrator("temperature").fit(1e5 * logits, labels).temperature == 1


def test_logits_worse_than_chance_are_an_optimum_at_infinity():
    logits, _ = sample(1000, 4)
    for scale in (1e-6, 1, 1e6):
        with pytest.warns(CalibrationWarning, match="T = infinity"):
            calibrator = make_calibrator("temperature").fit(scale * logits, logits.argmin(1))
        report = calibrator.report
        assert report.nll_after <= report.nll_before
        assert calibrator(scale * logits).numpy() == pytest.approx(0.25, abs=1e-3)
        assert math.isfinite(calibrator.temperature)


def test_equal_logits_are_said_to_be_equal():
    with pytest.warns(CalibrationWarning, match="equal"):
        calibrator = make_calibrator("temperature").fit(np.zeros((9, 3)), np.zeros(9, dtype=int))
    assert calibrator.temperature == 1
    assert calibrator.report.nll_after == pytest.approx(math.log(3))


def test_a_tie_for_the_top_is_finite():
    logits = torch.tensor([[1.0, 1.0, 0.0]] * 10, dtype=torch.float64)
    with pytest.warns(CalibrationWarning, match="T = 0"):
        calibrator = make_calibrator("temperature").fit(logits, [0] * 10)
    assert calibrator.report.nll_after == pytest.approx(math.log(2), abs=1e-3)


def test_one_error_among_confident_answers_bounds_the_temperature():
    logits = torch.eye(2, dtype=torch.float64).repeat(50, 1)
    labels = torch.tensor([0, 1] * 49 + [1, 1])  # 99 % right with a margin of 1: sigmoid(1 / T) = 0.99
    found = solve_temperature(logits, labels).temperature
    assert found == pytest.approx(1 / math.log(99), rel=1e-10)
