"""Accuracy, NLL, Brier: reference, scikit-learn, identities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrad.checks import InputError
from calgrad.metrics import accuracy, brier, generalised_brier, nll
from tests.metrics.samples import make
from tests.reference import metrics as reference


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(2, 12), st.integers(0, 1000), st.sampled_from(["float32", "float64"]))
def test_against_the_formulas(n, classes, seed, dtype):
    logits, labels = make(n, classes, seed=seed, dtype=getattr(torch, dtype))
    probs, y = reference.softmax(logits.numpy()), labels.numpy()
    close = {"rel": 2e-6, "abs": 2e-7}
    assert accuracy(logits=logits, labels=labels) == reference.accuracy(probs, y)
    assert nll(logits=logits, labels=labels) == pytest.approx(reference.nll(probs, y), **close)
    assert brier(logits=logits, labels=labels) == pytest.approx(reference.brier(probs, y), **close)
    for gamma, beta in [(2, 2), (4, 2), (1, 1), (0.5, 3), (3, math.inf)]:
        expected = reference.generalised_brier(probs, y, gamma, beta)
        assert generalised_brier(probs, y, gamma=gamma, beta=beta) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_against_scikit_learn():
    logits, labels = make(800, 7, dtype=torch.float64)
    probs, y = logits.softmax(1).numpy(), labels.numpy()
    assert nll(probs, y) == pytest.approx(sklearn.metrics.log_loss(y, probs, labels=range(7)), rel=1e-12)
    assert accuracy(probs, y) == pytest.approx(sklearn.metrics.accuracy_score(y, probs.argmax(1)))
    by_class = [np.mean((probs[:, k] - (y == k)) ** 2) for k in range(7)]
    assert brier(probs, y) == pytest.approx(sum(by_class), rel=1e-12)


def test_identities_of_the_generalised_brier_score():
    logits, labels = make(300, 5, dtype=torch.float64)
    probs = logits.softmax(1)
    assert generalised_brier(probs, labels) == pytest.approx(brier(probs, labels), rel=1e-12)
    p_true = probs.gather(1, labels[:, None])[:, 0]
    expected = float((2 * (1 - p_true)).pow(3).mean())  # beta = 1 is focal loss's score, times a constant
    assert generalised_brier(probs, labels, gamma=3, beta=1) == pytest.approx(expected, rel=1e-12)
    assert generalised_brier(probs, labels, gamma=0) == pytest.approx(1)


def test_the_true_posterior_is_the_minimiser():
    logits, labels = make(20_000, 4)
    for score in (nll, brier):
        at = {scale: score(logits=scale * logits, labels=labels) for scale in (0.8, 1.0, 1.25)}
        assert min(at, key=at.get) == 1.0


def test_nll_at_extremes():
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]])
    assert nll(logits=logits, labels=[0, 0]) == pytest.approx(1e4)  # finite: (0 + 20000) / 2
    assert nll([[1.0, 0.0]], [1]) == math.inf
    assert nll([[1.0, 0.0]], [0]) == 0.0
    assert brier([[1.0, 0.0]], [1]) == 2.0


def test_tiny_brier_scores_keep_their_digits():
    probs = torch.tensor([[1 - 1e-4, 1e-4]], dtype=torch.float32).repeat(1000, 1)
    p = probs[0].double()
    assert brier(probs, torch.zeros(1000, dtype=torch.long)) == pytest.approx(
        float((1 - p[0]) ** 2 + p[1] ** 2), rel=1e-6
    )


@pytest.mark.parametrize("metric", [accuracy, nll, brier, generalised_brier])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f([[0.5, 0.5]], [0], logits=[[0.0, 0.0]]), "exactly one of `probs` and `logits="),
        (lambda f: f(labels=[0]), "exactly one of `probs` and `logits="),
        (lambda f: f([[3.0, -1.0]], [0]), "logits"),
        (lambda f: f([[0.5, 0.6]], [0]), "sum to 1"),
        (lambda f: f([[0.5, 0.5]], [2]), r"\[0, 2\)"),
        (lambda f: f([[0.5, 0.5]], [0.0]), "integer class indices"),
        (lambda f: f(logits=[[math.nan, 0.0]], labels=[0]), "finite"),
        (lambda f: f([[0.5, 0.5]]), "labels"),
        (lambda f: f(np.zeros((0, 3)), []), "empty"),
    ],
)
def test_bad_input_is_refused(metric, call, message):
    with pytest.raises(InputError, match=message):
        call(metric)


def test_bad_options_are_refused():
    with pytest.raises(InputError, match="`beta` must be at least 1"):
        generalised_brier([[0.5, 0.5]], [0], beta=0.5)
