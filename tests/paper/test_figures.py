"""Every figure from real (tiny) runs: the data first, then that a picture comes out of it."""

from __future__ import annotations

import csv
import math

import pytest

from calgrad.checks import InputError
from calgrad.paper.confidence import confidence_figure_rows, draw_confidence
from calgrad.paper.ece_bars import draw_ece_bars, ece_bar_rows
from calgrad.paper.ece_over_epochs import draw_ece_over_epochs, ece_epoch_rows, smoothed
from calgrad.paper.figures import looks, write_figure
from calgrad.paper.focal_gradient import draw_focal_gradient, focal_gradient_rows
from calgrad.paper.gamma_beta import draw_gamma_beta, gamma_beta_rows
from calgrad.paper.gradient_density import draw_gradient_density, gradient_density_rows
from calgrad.paper.gradient_vs_brier import band_widths, draw_gradient_vs_brier, gradient_brier_rows
from calgrad.paper.records import read_rows
from calgrad.paper.simplex_weights import draw_simplex, simplex_rows
from calgrad.paper.traces import trace_rows
from tests.paper.test_records import made_up


def drawn(name, rows, draw, tmp_path):
    table, png, svg = write_figure(name, rows, draw, data=tmp_path, pictures=tmp_path)
    with table.open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert png.stat().st_size > 5000
    assert svg.read_text().rstrip().endswith("</svg>")


def test_figures_that_need_no_run(tmp_path):
    drawn("fig-focal-gradient", focal_gradient_rows(gammas=(1, 3), points=21), draw_focal_gradient, tmp_path)
    drawn("fig-weights", simplex_rows(parts=5, slice_parts=8), draw_simplex, tmp_path)
    with pytest.raises(InputError, match="nothing to draw"):
        write_figure("x", [], draw_simplex, data=tmp_path, pictures=tmp_path)


def test_ece_over_epochs(digit_runs, tmp_path):
    rows = ece_epoch_rows(trace_rows([digit_runs], "epochs"))
    assert {r["label"] for r in rows} == {"ce", "focal", "bsce-gra (beta=2;gamma=2)", "bsce-gra (beta=2;gamma=4)"}
    ce = [r for r in rows if r["label"] == "ce"]
    assert [r["epoch"] for r in ce] == [1, 2, 3, 4]
    assert {r["seeds"] for r in ce} == {2}
    drawn("fig-ece-over-epochs", rows, draw_ece_over_epochs, tmp_path)
    assert smoothed([4.0, 2.0, 2.0], 0.5) == [4.0, 3.0, 2.5]
    only = ece_epoch_rows(trace_rows([digit_runs], "epochs"), losses=["focal"])
    assert {r["label"] for r in only} == {"focal"}


def test_gradient_figures(digit_runs, tmp_path):
    traces = trace_rows([digit_runs], "gradients")
    rows = gradient_brier_rows(traces)
    assert [r["epoch"] for r in rows] == sorted(r["epoch"] for r in rows)
    assert all(r["q10"] <= r["q50"] <= r["q90"] for r in rows)
    widths = band_widths(rows, 2, ["ce", "focal"])
    assert all(width > 0 for width in widths.values())
    assert math.isnan(band_widths(rows, 99, ["ce", "focal"])["ce"])
    drawn("fig-gradient-vs-brier", rows, draw_gradient_vs_brier, tmp_path)
    density = gradient_density_rows(traces)
    for label in ("ce", "focal"):
        here = [r for r in density if (r["label"], r["epoch"]) == (label, 4)]
        width = here[1]["log10_norm"] - here[0]["log10_norm"]
        assert sum(r["density"] for r in here) * width == pytest.approx(1, abs=1e-6)
    drawn("fig-gradient-density", density, draw_gradient_density, tmp_path)


def test_a_focused_loss_pulls_less_at_the_same_brier_score(digit_runs):
    """(1 - p) ** gamma <= 1: at the last layer BSCE-GRA's gradients are smaller than CE's wherever the score is below 1."""
    rows = gradient_brier_rows(trace_rows([digit_runs], "gradients"))
    last = {(r["label"], r["brier"]): r["q50"] for r in rows if r["epoch"] == 4 and r["brier"] < 0.5}
    pairs = [(v, last["ce", b]) for (label, b), v in last.items() if "gamma=4" in label and ("ce", b) in last]
    assert pairs
    assert all(ours < ce for ours, ce in pairs)


def test_confidence(digit_runs, tmp_path):
    rows = confidence_figure_rows(trace_rows([digit_runs], "confidence"))
    assert {r["epoch"] for r in rows} == {2, 4}  # what `gradient_epochs` asked for; the last epoch is not counted twice
    assert {r["split"] for r in rows} == {"test"}
    assert sum(r["correct"] + r["wrong"] for r in rows if r["label"] == "ce") == 2 * 2 * 540
    drawn("fig-confidence", rows, draw_confidence, tmp_path)


def test_bars_and_gamma(digit_runs, tmp_path):
    published_only = ece_bar_rows([])
    assert len(published_only) == 3 * 2 * 7 * 2
    rows = ece_bar_rows([made_up(), made_up(loss="ce", value=0.04)])
    assert len(rows) == len(published_only) + 3 * 2 * 2
    drawn("fig-ece-bars", rows, draw_ece_bars, tmp_path)
    runs = read_rows([digit_runs])
    drawn("fig-ece-bars", ece_bar_rows(runs, cells=["digits/mlp"]), draw_ece_bars, tmp_path)
    grid = gamma_beta_rows(runs)
    assert [(r["gamma"], r["beta"], r["n"]) for r in grid] == [(2, 2, 2), (4, 2, 2)]
    assert all(r["error_low"] <= r["error"] <= r["error_high"] for r in grid)
    drawn("fig-gamma-beta", grid, draw_gamma_beta, tmp_path)
    with pytest.raises(InputError, match="no run of bsce"):
        gamma_beta_rows([r for r in runs if r.run.loss == "ce"])


def test_every_label_looks_different():
    rows = [{"label": x, "loss": x.split("#")[0]} for x in ("bsce-gra#2", "bsce-gra#4", "ce", "mystery", "focal")]
    found = looks(rows)
    assert len({v["color"] for v in found.values()}) == 5
    assert found["ce"]["color"] == looks(rows[2:])["ce"]["color"]
