"""Vector, matrix, Dirichlet and structured scaling: gradients, scikit-learn, scipy, limits of the penalty."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from calgrad.posthoc import make_calibrator, solve_temperature
from calgrad.posthoc.optimise import Affine, fit_affine, lbfgs, nll_and_gradient
from calgrad.posthoc.structured import bounded
from tests.posthoc.conftest import sample
from tests.reference import posthoc as reference


def distorted(n=1500, classes=3, seed=0):
    """Logits under a known affine map."""
    logits, labels = sample(n, classes, seed=seed, scale=1.5)
    # rows of equal sum: a constant added to a row of logits stays one, so log-probabilities can undo the map too
    weight = torch.tensor([[2.0, 0.3, -0.3], [-0.2, 1.5, 0.7], [0.0, -0.5, 2.5]], dtype=torch.float64)
    return logits @ weight.T + torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64), labels


@pytest.mark.parametrize("diagonal", [True, False])
def test_gradient_is_that_of_autograd(diagonal):
    logits, labels = sample(30, 4)
    weight = torch.randn((4,) if diagonal else (4, 4), dtype=torch.float64, requires_grad=True)
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True)
    out = logits * weight + bias if diagonal else logits @ weight.T + bias
    expected = torch.autograd.grad(torch.nn.functional.cross_entropy(out, labels), (weight, bias))
    value, *found = nll_and_gradient(logits, labels, Affine(weight.detach(), bias.detach()))
    assert value.item() == pytest.approx(torch.nn.functional.cross_entropy(out, labels).item(), abs=1e-13)
    for mine, theirs in zip(found, expected):
        assert torch.allclose(mine, theirs, atol=1e-14)


def test_lbfgs_on_a_quadratic():
    curvature = torch.logspace(-1.5, 1.5, 40, dtype=torch.float64)
    target = torch.randn(40, dtype=torch.float64)
    found, converged = lbfgs(
        lambda x: (float((curvature * (x - target) ** 2).sum() / 2), curvature * (x - target)),
        torch.zeros(40, dtype=torch.float64), tolerance=1e-9, iterations=500,
    )  # fmt: skip
    assert converged
    assert torch.allclose(found, target, atol=1e-7)


@pytest.mark.parametrize("diagonal", [True, False])
def test_scipy_finds_the_same_optimum(diagonal):
    logits, labels = distorted(300)
    penalty = torch.full((3,) if diagonal else (3, 3), 0.02, dtype=torch.float64)
    mine = fit_affine(logits, labels, weight_penalty=penalty, bias_penalty=0.01, tolerance=1e-9)
    z, y = logits.numpy(), labels.numpy()
    size = penalty.numel()
    start = np.ones(3) if diagonal else np.eye(3)

    def objective(x):
        weight, bias = x[:size].reshape(start.shape), x[size:]
        out = z * weight + bias if diagonal else z @ weight.T + bias
        return (
            reference.nll(reference.log_softmax(out), y) + 0.02 * ((weight - start) ** 2).sum() + 0.01 * (bias**2).sum()
        )

    theirs = minimize(objective, np.concatenate([start.ravel(), np.zeros(3)]), method="BFGS", options={"gtol": 1e-8})
    assert mine.converged
    assert np.concatenate([mine.weight.numpy().ravel(), mine.bias.numpy()]) == pytest.approx(theirs.x, abs=2e-6)


def test_unregularised_matrix_scaling_is_scikit_learns_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    logits, labels = distorted()
    mine = make_calibrator("matrix", strength=0.0).fit(logits, labels)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(logits.numpy(), labels.numpy())
    # the weak prior on the diagonal alone remains
    assert mine(logits).numpy() == pytest.approx(theirs.predict_proba(logits.numpy()), abs=2e-3)
    best = reference.nll(theirs.predict_log_proba(logits.numpy()), labels.numpy())
    assert mine.report.nll_after == pytest.approx(best, abs=1e-5)
    assert mine.report.nll_after >= best - 1e-9


def test_dirichlet_with_log_probs_is_matrix_scaling_of_them():
    logits, labels = distorted(600)
    dirichlet = make_calibrator("dirichlet", strength=0.5).fit(logits, labels)
    matrix = make_calibrator("matrix", strength=0.5).fit(logits.log_softmax(1), labels)
    assert torch.allclose(dirichlet(logits), matrix(logits.log_softmax(1)), atol=1e-9)
    shifted = dirichlet(logits + torch.arange(600.0, dtype=torch.float64)[:, None])
    assert torch.allclose(shifted, dirichlet(logits), atol=1e-9)  # constants of a row say nothing


@pytest.mark.parametrize("name", ["sms", "svs", "vector"])
def test_a_strong_penalty_leaves_temperature_scaling(name):
    logits, labels = distorted(800)
    options = {"prior_sd": 1e-5} if name == "vector" else {"strength": 1e8}
    probs = make_calibrator(name, **options).fit(logits, labels)(logits)
    temperature = make_calibrator("temperature").fit(logits, labels)(logits)
    # svs and sms mix in one sample of the uniform distribution
    assert (probs - temperature).abs().max() < (1e-6 if name == "vector" else 2e-3)


@pytest.mark.parametrize("name", ["matrix", "dirichlet"])
def test_a_strong_odir_penalty_leaves_the_diagonal_alone(name):
    logits, labels = distorted(800)
    fitted = make_calibrator(name, strength=1e4).fit(logits, labels).parameters
    diagonal = fitted["weight"].diagonal()
    assert (fitted["weight"] - torch.diag(diagonal)).abs().max() < 1e-3
    assert fitted["bias"].abs().max() < 1e-2
    assert diagonal.max() - diagonal.min() > 0.05


def test_a_multiple_of_the_identity_is_temperature():
    logits, labels = sample(200, 3)
    matrix = make_calibrator("matrix", strength=1.0).fit(logits, labels)
    vector = make_calibrator("vector").fit(logits, labels)
    zero = torch.zeros(3, dtype=torch.float64)
    matrix.parameters = {"weight": torch.eye(3, dtype=torch.float64) / 2.5, "bias": zero}
    vector.parameters = {"weight": torch.full((3,), 1 / 2.5, dtype=torch.float64), "bias": zero}
    for calibrator in (matrix, vector):
        assert torch.allclose(calibrator(logits), (logits / 2.5).softmax(1), atol=1e-12)


def test_a_known_affine_map_is_undone():
    logits, labels = distorted(30_000)
    clean, truth = sample(30_000, 3, scale=1.5)
    best = float(torch.nn.functional.cross_entropy(clean, truth))
    for name in ("matrix", "dirichlet", "sms"):
        after = make_calibrator(name).fit(logits, labels).report.nll_after
        assert after == pytest.approx(best, abs=1e-3), name
    assert make_calibrator("temperature").fit(logits, labels).report.nll_after > best + 5e-3


@pytest.mark.parametrize("name", ["vector", "matrix", "svs", "sms"])
def test_any_scale_of_logits_is_the_same_problem(name):
    logits, labels = distorted(400)
    options = {"strength": 1.0} if name == "matrix" else {}
    plain = make_calibrator(name, **options).fit(logits, labels)
    for scale in (1e-4, 1e4):
        scaled = make_calibrator(name, **options).fit(scale * logits, labels)
        assert torch.allclose(scaled(scale * logits), plain(logits), atol=1e-5)


def test_structured_features_are_bounded_and_the_penalties_those_of_the_paper():
    logits, labels = sample(200, 3)
    calibrator = make_calibrator("sms").fit(1e4 * logits, labels)
    x = bounded(1e4 * logits, calibrator.parameters)
    assert x.min() >= np.log(1 / (201 * 3)) - 1e-12
    temperature = solve_temperature(1e4 * logits, labels).temperature
    tempered = (1e4 * logits / temperature).softmax(1).numpy()
    assert x.numpy() == pytest.approx(np.log(200 / 201 * tempered + 1 / 603), abs=1e-9)
    # stationarity of mean NLL + K/N (|diag(W) - 1|^2 + |b|^2) + K(K-1)/N |off-diagonal|^2
    weight, bias = calibrator.parameters["weight"], calibrator.parameters["bias"]
    _, by_weight, by_bias = nll_and_gradient(x, labels, Affine(weight, bias))
    eye = torch.eye(3, dtype=torch.float64)
    strength = 3 / 200 * eye + 6 / 200 * (1 - eye)
    assert (by_weight + 2 * strength * (weight - eye)).abs().max() < 1e-5
    assert (by_bias + 2 * 3 / 200 * bias).abs().max() < 1e-5


def test_probmetrics_finds_the_same():
    calibrators = pytest.importorskip("probmetrics.calibrators")
    logits, labels = distorted(1000)
    for name, theirs in [("svs", calibrators.SVSCalibrator()), ("sms", calibrators.SMSCalibrator())]:
        mine = make_calibrator(name).fit(logits, labels)
        theirs.fit(logits.softmax(1).numpy(), labels.numpy())
        assert mine(logits).numpy() == pytest.approx(theirs.predict_proba(logits.softmax(1).numpy()), abs=5e-3)


def test_few_samples_of_many_classes_do_not_overfit():
    logits, labels = sample(400, 20, scale=2.0)
    fresh, truth = sample(4000, 20, seed=1, scale=2.0)
    untouched = float(torch.nn.functional.cross_entropy(fresh, truth))
    for name in ("vector", "matrix", "dirichlet", "svs", "sms"):
        log_probs = make_calibrator(name).fit(logits, labels).log_probs(fresh)
        assert -float(log_probs.gather(1, truth[:, None]).mean()) < untouched + 0.06, name
