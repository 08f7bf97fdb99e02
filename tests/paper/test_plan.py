from __future__ import annotations

import pytest

from calgrad.paper.plan import estimate, plan_runs
from calgrad.paper.tables import SPECS
from calgrad.sweep import Run, run_folder
from calgrad.sweep.cost import MEASURED, multiply_adds
from calgrad.train import Recipe, train
from tests.paper.test_records import made_up


def test_a_cell_of_table_1(tmp_path):
    runs = plan_runs("table-ece", cells=["cifar10/resnet50"], seeds=[1], folder=tmp_path)
    assert [r.recipe.loss for r in runs] == ["ce", "brier", "mmce-weighted", "flsd53", "dual", "bsce", "bsce-gra"]
    assert {(r.recipe.epochs, r.recipe.reduction, r.recipe.clip, r.recipe.model) for r in runs} == {
        (350, "sum", 2.0, "resnet50")
    }
    assert len({r.folder for r in runs}) == 7
    cost = estimate(runs)
    assert cost.runs == 7
    assert cost.images == 7 * 350 * 45_000
    assert cost.hours == pytest.approx(7 * 350 * 45_000 / MEASURED[2] / 3600)
    assert "H200" in cost.basis[0]


def test_seeds_losses_recipe_and_options(tmp_path):
    runs = plan_runs("table-ece", cells=["cifar10/resnet50"], losses=["ce", "focal-gra"], folder=tmp_path)
    assert [(r.recipe.loss, r.seed) for r in runs] == [(x, s) for s in (1, 42, 71) for x in ("ce", "focal-gra")]
    short = plan_runs(
        "table-ece", cells=["cifar10/resnet50"], losses=["ce"], seeds=[1], recipe="cifar10-short", folder=tmp_path
    )
    assert short[0].recipe.epochs < 350
    assert short[0].folder != runs[0].folder
    gammas = plan_runs("table-exponent", seeds=[1], folder=tmp_path)
    assert [r.recipe.loss_options["gamma"] for r in gammas] == [3, 4, 5, 6, 7, 8]
    changed = plan_runs(
        "table-ece", cells=["cifar10/resnet50"], losses=["ce", "bsce-gra"], seeds=[1],
        changes={"loss_options": {"gamma": 2}, "epochs": 7, "milestones": [], "schedule": "cosine", "gradient_epochs": []},
        folder=tmp_path,
    )  # fmt: skip
    assert [dict(r.recipe.loss_options) for r in changed] == [{}, {"gamma": 2}]
    assert changed[0].recipe.epochs == 7


@pytest.mark.parametrize("table", list(SPECS))
def test_every_table_can_be_planned(table, tmp_path):
    runs = plan_runs(table, seeds=[1], folder=tmp_path)
    assert runs
    assert len({r.folder for r in runs}) == len(runs)


def test_what_is_done_costs_nothing(tmp_path):
    recipe = Recipe(data="digits", model="mlp", name="digits", epochs=2, checkpoint_every=0)
    runs = [Run(recipe, seed, run_folder(tmp_path, recipe, seed)) for seed in (1, 2)]
    train(recipe, 1, folder=runs[0].folder, quiet=True)
    cost = estimate(runs, images_per_second=1000)
    assert cost.runs == 1
    assert cost.images == 2 * 1000
    assert cost.hours == pytest.approx(2 / 3600)
    assert "as given" in cost.basis[0]


def test_measured_speeds_come_first(tmp_path):
    runs = plan_runs("table-ece", cells=["cifar10/resnet50"], losses=["ce"], seeds=[1], folder=tmp_path)
    cost = estimate(runs, [made_up(images_per_second=20_000.0)])
    assert cost.hours == pytest.approx(350 * 45_000 / 20_000 / 3600)
    assert "measured on H200" in cost.basis[0]


def test_multiply_adds_are_known():
    """1.30 billion for the CIFAR ResNet-50, as its definition gives; 64 x 128 + 128 x 10 for the digits MLP."""
    assert multiply_adds("cifar10", "resnet50") == pytest.approx(1.298e9, rel=1e-3)
    assert multiply_adds("digits", "mlp") == 64 * 128 + 128 * 10
