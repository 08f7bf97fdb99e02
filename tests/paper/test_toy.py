from __future__ import annotations

import numpy as np
import pytest
import torch

from calgrad.paper.toy import Outcome, pearson, toy_rows, toy_table, trained_net


def test_pearson_is_numpys():
    a, b = torch.randn(2, 100, dtype=torch.float64)
    assert pearson(a, b + a) == pytest.approx(np.corrcoef(a, a + b)[0, 1], abs=1e-12)
    assert pearson(a, torch.ones(100, dtype=torch.float64)) == 0


def test_errors_and_weights_by_hand():
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3]], dtype=torch.float64)
    eta = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.1, 0.8]], dtype=torch.float64)
    outcome = Outcome(probs, torch.tensor([0, 2]), eta)
    assert outcome.error("vector").tolist() == pytest.approx([np.sqrt(0.06), np.sqrt(0.01 + 0.16 + 0.25)])
    assert outcome.error("literal").tolist() == pytest.approx([0.1, 0.3])
    assert outcome.weight("true-class", "label", 1, 2).tolist() == pytest.approx([0.09, 0.49])
    assert outcome.weight("true-class", "confidence", 1, 2).tolist() == pytest.approx([0.09, 0.25])
    assert outcome.weight("dual", "label", 1, 1).tolist() == pytest.approx([0.5, 0.9])
    assert outcome.weight("brier-norm", "label", 1, 1).tolist() == pytest.approx([0.6, 1.4])  # 2 (1 - p_y)


def test_a_trained_net_approaches_the_posterior():
    seen, unseen = trained_net(1, rate=0.05, points=5000, epochs=5)
    assert len(seen.labels) == 5000
    assert len(unseen.labels) == 5000
    assert float(unseen.error("vector").mean()) < 0.1
    assert float((unseen.probs.argmax(1) == unseen.eta.argmax(1)).double().mean()) > 0.95


def test_a_small_toy():
    rows = toy_rows(runs=2, rates=(0.05,), points=3000, gammas=(0.5, 1, 2))
    assert len(rows) == 2 * 5 * 2
    assert all(-1 <= r["pearson"] <= 1 for r in rows)
    assert all(r["pearson"] > 0.3 for r in rows if r["p"] == "label")
    by = {(r["error"], r["score"], r["p"], r["seed"]): r["pearson"] for r in rows}
    # The Brier weight contains focal's (beta = 1), so it can't be clearly behind it.
    for seed in (1, 2):
        assert by["vector", "brier-norm", "label", seed] > by["vector", "true-class", "label", seed] - 0.05
    table = toy_table(rows)
    assert [title for title, _ in table.sections] == [
        "error: vector; learning rate 0.05",
        "error: literal; learning rate 0.05",
    ]
    assert "0.664" in table.to_markdown()
