"""The theory items against closed forms that are written down here anew."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from calgrad.losses import make_loss
from calgrad.paper.focal_gradient import focal_gradient_rows, gradient_weight, turning_point
from calgrad.paper.simplex_weights import SLICE, simplex_points, simplex_rows
from calgrad.paper.theory import (
    expected_gap,
    expected_gradient,
    gap_rows,
    minimiser_rows,
    proof_rows,
    random_distributions,
    stationary_point,
    theory_tables,
)


def test_the_gap_of_eq_12_is_constant_for_the_brier_score_alone():
    rows = {(r["beta"], r["gamma"]): r for r in gap_rows(posteriors=10, points=50)}
    assert rows[2, 2]["spread_over_p"] < 1e-14
    assert rows[2, 2]["off_eq_12"] < 1e-14
    for exponents, row in rows.items():
        if exponents != (2, 2):
            assert row["spread_over_p"] > 0.1


def test_the_gap_by_drawing_labels():
    """The expectation over the label, by Monte Carlo instead of a sum."""
    eta, p = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.7, 0.2])
    labels = np.random.default_rng(0).choice(3, 200_000, p=eta)
    drawn = ((p - np.eye(3)[labels]) ** 2).sum(1).mean() - ((p - eta) ** 2).sum()
    exact = float(expected_gap(torch.tensor(p)[None], torch.tensor(eta)[None]))
    assert exact == pytest.approx(sum(eta * (1 - eta)), abs=1e-12)
    assert drawn == pytest.approx(exact, abs=5e-3)


def test_two_classes_with_the_focal_weight_have_a_temperature_as_minimiser():
    """p / (1 - p) = (eta / (1 - eta)) ** (1 / (gamma + 1)), in closed form."""
    eta = torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64)
    probs = stationary_point(make_loss("focal-gra", gamma=3), eta)
    odds = (eta[:, 0] / eta[:, 1]) ** (1 / 4)
    assert torch.allclose(probs[:, 0], odds / (1 + odds), atol=1e-12)


def test_the_minimiser_is_not_eta_and_the_link_recovers_it():
    rows = minimiser_rows(classes=(3, 5), points=8)
    for row in rows:
        assert row["gradient_with_y"] < 1e-12
        assert row["off_eta_after_link"] < 1e-10
        if row["loss"] == "ce":
            assert row["off_eta"] < 1e-12
        else:
            assert row["off_eta"] > 0.05
            assert row["confidence"] < row["confidence_of_eta"]  # under-confident, never over


def test_the_proof_is_about_another_loss():
    with_eta, with_y = (row["gradient_at_eta"] for row in proof_rows(points=8))
    assert with_eta < 1e-14
    assert with_y > 0.05


def test_expected_gradient_is_that_of_the_formula():
    eta, probs = random_distributions(4, 3, seed=0), random_distributions(4, 3, seed=1)
    e = torch.eye(3, dtype=torch.float64)
    u = torch.stack([(probs - e[k]).square().sum(1) for k in range(3)], dim=1)
    by_hand = sum(eta[:, k, None] * u[:, k, None] * (probs - e[k]) for k in range(3))
    loss = make_loss("bsce-gra", gamma=2, beta=2, reduction="sum")
    assert expected_gradient(loss, probs, eta) == pytest.approx(float(by_hand.abs().max()), rel=1e-12)


def test_tables_hold_every_row():
    gap, proof, minima = gap_rows(posteriors=2, points=5), proof_rows(points=2), minimiser_rows(classes=(2,), points=2)
    tables = theory_tables(gap, proof, minima)
    assert [sum(len(rows) for _, rows in t.sections) for t in tables] == [4, 2, len(minima)]


@pytest.mark.parametrize("gamma", [1, 2, 3.5, 5])
def test_focal_gradient_is_g(gamma):
    p = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    g = (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * p.log()
    assert torch.allclose(gradient_weight("focal", p, gamma), g, rtol=1e-9, atol=1e-12)
    assert torch.allclose(gradient_weight("focal-gra", p, gamma), (1 - p) ** gamma, rtol=1e-9, atol=1e-12)


def test_turning_point():
    assert turning_point(1) == pytest.approx((math.exp(-2), 1 + math.exp(-2)), abs=1e-4)
    p0, peak = turning_point(3)
    for nearby in (p0 - 0.01, p0 + 0.01):
        assert float(gradient_weight("focal", torch.tensor([nearby], dtype=torch.float64), 3)) < peak
    rows = focal_gradient_rows(gammas=(2,), points=11)
    assert len(rows) == 11
    assert all(r["focal_gra"] <= 1 for r in rows)
    assert rows[0]["peak"] > 1  # focal loss enlarges the gradient of some samples beyond cross-entropy's


def test_weights_over_the_simplex():
    rows = simplex_rows(parts=4, slice_parts=4)
    assert len([r for r in rows if r["panel"] == "simplex"]) == 35  # (4 + 3 choose 3)
    cut = [r for r in rows if r["panel"] == "slice"]
    assert len(cut) == 15
    for row in rows:
        p = [row[f"p{k}"] for k in range(4)]
        assert sum(p) == pytest.approx(1)
        assert row["focal"] == pytest.approx(1 - p[0])
        assert row["brier"] == pytest.approx((p[0] - 1) ** 2 + p[1] ** 2 + p[2] ** 2 + p[3] ** 2)
        assert row["dual"] == pytest.approx(1 - p[0] + max([q for q in p if q < p[0]], default=0))
    assert {r["focal"] for r in cut} == {1 - SLICE}
    assert min(cut, key=lambda r: r["brier"])["p1"] == pytest.approx(
        0.15
    )  # the most even share of 0.6 in steps of 0.15
    assert simplex_points(2, 2).tolist() == [[0, 1], [0.5, 0.5], [1, 0]]
