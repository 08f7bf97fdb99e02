"""A comparison of losses: views, pooling, pairing, bold only where it is earned."""

from __future__ import annotations

import csv
import json

import pytest
import torch

from calgrad.checks import InputError
from calgrad.losses import make_loss
from calgrad.predictions import Predictions
from calgrad.report.compare_files import comparison_table, write_comparison
from calgrad.report.comparison import Candidate, compare


def predictions(seed: int, scale: float, n: int = 600, noise: float = 0.0) -> Predictions:
    """Labels are drawn once from softmax(z); the logits are scale * z, so scale > 1 is over-confident."""
    generator = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(n, 4, generator=generator)
    labels = torch.multinomial(z.softmax(1), 1, generator=generator).squeeze(1)
    own = torch.Generator().manual_seed(seed)
    return Predictions(logits=scale * (z + noise * torch.randn(n, 4, generator=own)), labels=labels)


def candidate(loss: str, seed: int, scale: float) -> Candidate:
    return Candidate(loss, seed, make_loss(loss), predictions(seed, scale), predictions(seed, scale, noise=0.05))


@pytest.fixture(scope="module")
def comparison():
    runs = [
        candidate(loss, seed, scale)
        for loss, scale in [("ce", 3.0), ("bsce-gra", 1.0), ("mmce", 2.9)]
        for seed in (1, 2, 3)
    ]
    return compare(runs, ensemble=True)


def test_every_loss_has_the_views_it_can_have(comparison):
    views = {(row.loss, row.view) for row in comparison.rows}
    assert {("ce", v) for v in ("as trained", "temperature", "link", "link-temperature")} <= views
    assert ("mmce", "temperature") in views
    assert ("mmce", "link") not in views  # a penalty that couples samples has none
    (note,) = comparison.notes
    assert note.startswith("mmce has no link")
    assert "couples" in note
    assert ("ce ensemble", "as trained") in views


def test_temperature_repairs_the_over_confident(comparison):
    before, after = comparison.row("ce"), comparison.row("ce", "temperature")
    assert before.temperature is None or before.temperature == 1
    assert after.temperature == pytest.approx(3.0, rel=0.15)
    assert after.pooled["nll"].value < before.pooled["nll"].value - 0.1
    assert after.pooled["ece"].value < before.pooled["ece"].value / 2
    assert after.pooled["accuracy"] == before.pooled["accuracy"]


def test_the_link_of_cross_entropy_is_the_identity(comparison):
    assert comparison.row("ce", "link").pooled["nll"].value == pytest.approx(
        comparison.row("ce").pooled["nll"].value, abs=1e-6
    )


def test_bold_needs_a_significant_difference(comparison):
    assert comparison.is_best(comparison.row("bsce-gra"), "nll")
    assert not comparison.is_best(comparison.row("ce"), "nll")
    # All three have nearly the same accuracy: nobody is best.
    assert not any(comparison.is_best(row, "accuracy") for row in comparison.rows if row.view == "as trained")


def test_pooled_values_are_the_means_of_the_runs(comparison):
    for row in comparison.rows:
        runs = [r for r in comparison.runs if (r["loss"], r["view"]) == (row.loss, row.view)]
        assert len(runs) == row.seeds
        for metric in ("ece", "nll", "brier", "accuracy"):
            mean = sum(r[metric] for r in runs) / len(runs)
            assert row.pooled[metric].value == pytest.approx(mean, abs=2e-6)


def test_baseline_that_is_absent_becomes_the_first():
    result = compare([candidate("brier", 1, 2.0), candidate("focal", 1, 1.0)])
    assert result.baseline == "brier"


def test_other_test_samples_are_refused():
    one = candidate("ce", 1, 1.0)
    shuffled = one.test.select(torch.randperm(one.test.n))
    other = Candidate("brier", 1, make_loss("brier"), one.val, shuffled)
    with pytest.raises(InputError, match="same test samples"):
        compare([one, other])
    with pytest.raises(InputError, match="nothing to compare"):
        compare([])


def test_files_hold_the_same_numbers(comparison, tmp_path):
    paths = write_comparison(comparison, tmp_path, title="toy", about={"recipe": {}})
    assert {p.name for p in paths} == {
        "compare.md", "compare.tex", "compare.json", "compare.csv", "runs.csv", "compare.png", "compare.svg",
    }  # fmt: skip
    stored = json.loads((tmp_path / "compare.json").read_text())
    with (tmp_path / "compare.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == len(stored["rows"]) == len(comparison.rows)
    ece = comparison.row("ce").pooled["ece"].value
    assert float(rows[0]["ece"]) == ece == stored["rows"][0]["pooled"]["ece"]["value"]
    assert f"{100 * ece:.2f} [" in (tmp_path / "compare.md").read_text()
    assert (tmp_path / "compare.png").stat().st_size > 10_000


def test_the_table_says_what_its_bold_means(comparison):
    table = comparison_table(comparison, title="toy")
    assert "Holm" in table.caption
    assert "against ce" in table.caption
    bold = [cell.text for _, rows in table.sections for row in rows for cell in row if cell.bold]
    assert bold
