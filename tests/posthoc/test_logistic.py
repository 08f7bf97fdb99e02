"""Platt scaling and beta calibration against scikit-learn, scipy and their identities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from calgrad.posthoc import make_calibrator
from calgrad.posthoc.logistic import logistic_newton
from calgrad.posthoc.one_vs_rest import Odds, log_complement
from tests.posthoc.conftest import sample
from tests.reference import posthoc as reference


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_log_odds_are_exact_in_both_tails(classes, scale):
    logits = scale * sample(50, classes)[0]
    odds = Odds.of(logits)
    expected = reference.log_odds(logits.numpy())
    assert odds.log_odds.numpy() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    log_p = logits.log_softmax(1) if classes > 2 else logits.log_softmax(1)[:, 1:]
    assert torch.equal(odds.log_p, log_p)


def test_log_complement():
    q = torch.tensor([1e-300, 1e-9, 0.3, 0.5, 0.7, 1 - 1e-9], dtype=torch.float64)
    assert log_complement(q.log()).exp().numpy() == pytest.approx((1 - q).numpy(), rel=1e-6)
    assert log_complement(torch.tensor([0.0])).item() == -np.inf
    assert log_complement(torch.tensor([-np.inf])).item() == 0


def test_binary_platt_is_scikit_learns_sigmoid_with_the_same_targets():
    from sklearn.calibration import _SigmoidCalibration

    logits, labels = sample(400, 2)
    score = (3 * (logits[:, 1] - logits[:, 0]) - 0.7).numpy()
    theirs = _SigmoidCalibration().fit(score, labels.numpy())  # 1 / (1 + exp(a s + b))
    mine = make_calibrator("platt").fit(np.stack([0 * score, score], axis=1), labels)
    assert float(mine.parameters["slope"]) == pytest.approx(-theirs.a_, rel=1e-4)
    assert float(mine.parameters["bias"]) == pytest.approx(-theirs.b_, abs=1e-4)


def test_platt_without_smooth_targets_is_scikit_learns_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    logits, labels = sample(500, 4)
    mine = make_calibrator("platt", smooth_targets=False).fit(2 * logits, labels)
    scores = reference.log_odds(2 * logits.numpy())
    for k in range(4):
        theirs = LogisticRegression(C=np.inf, tol=1e-10).fit(scores[:, k : k + 1], labels.numpy() == k)
        assert mine.parameters["slope"][k].item() == pytest.approx(theirs.coef_[0, 0], rel=1e-4)
        assert mine.parameters["bias"][k].item() == pytest.approx(theirs.intercept_[0], abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_beta_is_scipys_constrained_optimum(seed, rng):
    """Also where a or b would be negative: labels that fall with the score at one end."""
    score = rng.normal(size=300) * 2
    rate = 1 / (1 + np.exp(-[score, 1.5 * score + 1, np.where(score > 0, -score, score), -score][seed]))
    labels = (rng.random(300) < rate).astype(int)
    calibrator = make_calibrator("beta").fit(np.stack([0 * score, score], axis=1), labels)
    log_p, log_1mp = -np.log1p(np.exp(-score)), -np.log1p(np.exp(score))
    positive = labels.sum()
    targets = np.where(labels == 1, (positive + 1) / (positive + 2), 1 / (300 - positive + 2))

    def objective(x):
        margin = x[0] * log_p - x[1] * log_1mp + x[2]
        return np.mean(np.logaddexp(0, margin) - targets * margin)

    theirs = minimize(
        objective, [1, 1, 0], bounds=[(0, None), (0, None), (None, None)], options={"ftol": 1e-15, "gtol": 1e-10}
    )
    mine = [float(calibrator.parameters[name]) for name in "abc"]
    assert objective(mine) <= theirs.fun + 1e-9
    assert mine == pytest.approx(theirs.x, abs=2e-3)
    assert min(mine[:2]) >= 0


@pytest.mark.parametrize("classes", [2, 4])
def test_beta_holds_the_identity(classes):
    logits, labels = sample(100, classes)
    calibrator = make_calibrator("beta").fit(logits, labels)
    problems = classes if classes > 2 else 1
    one = torch.ones(problems, dtype=torch.float64)
    calibrator.parameters = {"a": one, "b": one, "c": 0 * one, "pseudo": torch.zeros((), dtype=torch.float64)}
    assert torch.allclose(calibrator(logits), logits.softmax(1), atol=1e-12)


def test_platt_of_a_calibrated_model_is_about_the_identity():
    logits, labels = sample(50_000, 2)
    fitted = make_calibrator("platt").fit(logits, labels).parameters
    assert fitted["slope"].item() == pytest.approx(1, abs=0.03)
    assert fitted["bias"].item() == pytest.approx(0, abs=0.03)


def test_separated_classes_stay_finite_with_smooth_targets_and_are_said_without():
    score = torch.linspace(-5, 5, 100, dtype=torch.float64)
    logits = torch.stack([0 * score, score], dim=1)
    labels = (score > 0).long()
    fitted = make_calibrator("platt").fit(logits, labels)
    assert fitted.report.converged
    assert fitted.parameters["slope"].isfinite().all()
    with pytest.warns(UserWarning, match="separated"):
        make_calibrator("platt", smooth_targets=False).fit(logits, labels)


def test_newton_in_blocks_of_classes_is_newton(monkeypatch):
    logits, labels = sample(200, 6)
    targets = torch.nn.functional.one_hot(labels, 6).double()
    features = [logits, torch.ones_like(logits)]
    whole = logistic_newton(features, targets)
    monkeypatch.setattr("calgrad.posthoc.logistic.BLOCK", 400)
    parts = logistic_newton(features, targets)
    assert torch.allclose(whole[0], parts[0], atol=1e-6)
    assert torch.allclose(whole[1], parts[1], atol=1e-12)
