"""Ensemble temperature scaling: the weights are the optimum, certified."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from calgrad.posthoc import make_calibrator
from calgrad.posthoc.ensemble import mixture_weights
from tests.posthoc.conftest import sample


def mixed(n=3000, classes=4, seed=0):
    """Labels of a model that is right about its own probabilities nine times in ten and random otherwise."""
    logits, labels = sample(n, classes, seed=seed, scale=3.0)
    generator = torch.Generator().manual_seed(seed + 1)
    noise = torch.rand(n, generator=generator) < 0.1
    labels[noise] = torch.randint(classes, (int(noise.sum()),), generator=generator)
    return logits, labels


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), spread=st.floats(0.01, 20))
def test_weights_are_the_optimum_on_the_simplex(seed, n, spread):
    logs = spread * torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weights, converged = mixture_weights(logs)
    assert converged
    assert weights.min() >= 0
    assert weights.sum().item() == pytest.approx(1)
    likelihoods = (logs - logs.amax(1, keepdim=True)).exp()
    gradient = (likelihoods / (likelihoods @ weights)[:, None]).mean(dim=0)
    assert gradient.max() < 1 + 1e-5  # the duality gap: no distribution on the simplex is better by more


def test_scipy_finds_the_same():
    logits, labels = mixed()
    calibrator = make_calibrator("ensemble-temperature").fit(logits, labels)
    temperature = float(calibrator.parameters["temperature"])
    parts = [(logits / temperature).softmax(1), logits.softmax(1), torch.full_like(logits, 0.25)]
    of_truth = np.stack([p.gather(1, labels[:, None])[:, 0].numpy() for p in parts], axis=1)
    theirs = minimize(
        lambda w: -np.log(of_truth @ w).mean(), np.full(3, 1 / 3), jac=lambda w: -(of_truth / (of_truth @ w)[:, None]).mean(0),
        bounds=[(0, 1)] * 3, constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, options={"ftol": 1e-14},
    )  # fmt: skip
    assert calibrator.report.nll_after <= theirs.fun + 1e-9
    assert calibrator.parameters["weights"].numpy() == pytest.approx(theirs.x, abs=5e-3)


def test_never_worse_than_its_corners_and_better_where_a_mixture_is_true():
    logits, labels = mixed()
    ensemble = make_calibrator("ensemble-temperature").fit(logits, labels)
    temperature = make_calibrator("temperature").fit(logits, labels)
    assert ensemble.report.nll_after < temperature.report.nll_after - 1e-3
    assert ensemble.report.nll_after < ensemble.report.nll_before
    weights = ensemble.parameters["weights"]
    assert weights[2].item() == pytest.approx(0.1, abs=0.04)
    assert torch.equal(ensemble(logits).argmax(1), logits.argmax(1))
