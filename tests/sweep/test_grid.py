"""Grids: what they expand to, what they refuse, and that the paper's table is the paper's."""

from __future__ import annotations

from pathlib import Path

import pytest

from calgrad.checks import FileError, InputError
from calgrad.paper.plan import plan_runs
from calgrad.sweep.cost import estimate
from calgrad.sweep.grid import Grid, list_grids, load_grid

OUT = Path("out")


def test_the_table_1_grid_is_the_papers_whole_table():
    runs = load_grid("paper-table1").runs(OUT)
    assert len(runs) == 9 * 7 * 3
    planned = plan_runs("table-ece", folder=OUT)
    assert {(r.folder, r.recipe, r.seed) for r in runs} == {(r.folder, r.recipe, r.seed) for r in planned}
    assert [r.seed for r in runs] == [1] * 63 + [42] * 63 + [71] * 63
    cost = estimate(runs)
    assert cost.images == 8 * 21 * 350 * 45_000 + 21 * 100 * 90_000


@pytest.mark.parametrize("name", list_grids())
def test_every_shipped_grid_gives_different_runs(name):
    runs = load_grid(name).runs(OUT)
    assert len({(r.recipe.fingerprint(), r.seed) for r in runs}) == len({r.folder for r in runs}) == len(runs)


def test_every_axis_multiplies():
    grid = Grid.from_dict(
        {
            "recipe": ["digits", "gaussians"],
            "set": {"epochs": 3, "warmup": 1},
            "vary": {"lr": [0.1, 0.2], "model": ["mlp"], "model_options": [{}]},
            "losses": ["ce", "focal:gamma=2", {"loss": "bsce-gra", "gamma": [1, 2], "beta": 3}],
            "seeds": [5, 6],
        }
    )
    runs = grid.runs(OUT)
    assert len(runs) == 2 * 2 * 4 * 2
    assert {r.recipe.lr for r in runs} == {0.1, 0.2}
    assert {r.recipe.data for r in runs} == {"digits", "gaussians"}
    assert {r.recipe.epochs for r in runs} == {3}
    options = {(r.recipe.loss, tuple(r.recipe.loss_options.items())) for r in runs}
    assert options == {
        ("ce", ()),
        ("focal", (("gamma", 2),)),
        ("bsce-gra", (("gamma", 1), ("beta", 3))),
        ("bsce-gra", (("gamma", 2), ("beta", 3))),
    }
    assert "lr=0.1" in str(runs[0].folder)


def test_parts_inherit_and_flags_reach_them():
    grid = Grid.from_dict(
        {
            "losses": ["ce"],
            "seeds": [1],
            "parts": [{"recipe": "digits", "seeds": [2, 3]}, {"recipe": "gaussians", "losses": ["focal"]}],
        }
    )
    assert [(r.recipe.name, r.recipe.loss, r.seed) for r in grid.runs(OUT)] == [
        ("digits", "ce", 2),
        ("digits", "ce", 3),
        ("gaussians", "focal", 1),
    ]
    changed = grid.changed({"seeds": [9], "set": {"epochs": 7}})
    assert [(r.recipe.name, r.recipe.epochs, r.seed) for r in changed.runs(OUT)] == [
        ("digits", 7, 9),
        ("gaussians", 7, 9),
    ]


def test_by_default_the_recipes_own_loss_and_seeds():
    runs = Grid.from_dict({"recipe": "digits"}).runs(OUT)
    assert [(r.recipe.loss, r.seed) for r in runs] == [("ce", 1), ("ce", 2), ("ce", 3)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recipes": "digits"}, "Did you mean 'recipe'"),
        ({}, "names no run"),
        ({"recipe": "digit"}, "Did you mean 'digits'"),
        ({"recipe": "digits", "losses": ["cee"]}, "Did you mean 'ce'"),
        ({"recipe": "digits", "losses": [{"gamma": 2}]}, "a loss with options is written"),
        ({"recipe": "digits", "losses": [{"loss": "ce", "gamma": 2}]}, "gamma"),
        ({"recipe": "digits", "seeds": [1.5]}, "whole numbers"),
        ({"recipe": "digits", "seeds": []}, "whole numbers"),
        ({"recipe": "digits", "set": {"epoch": 2}}, "Did you mean 'epochs'"),
        ({"recipe": "digits", "vary": {"lr": [-1]}}, "`lr`"),
        ({"recipe": "digits", "vary": ["lr"]}, "`vary` must be a mapping"),
        ({"parts": ["digits"]}, "`parts` must be a mapping"),
    ],
)
def test_mistakes_are_refused_before_anything_is_trained(values, message):
    with pytest.raises(InputError, match=message):
        Grid.from_dict(values).runs(OUT)


def test_files_that_are_no_grids(tmp_path):
    with pytest.raises(InputError, match="Did you mean 'digits'"):
        load_grid("digit")
    with pytest.raises(FileError, match="absent"):
        load_grid(tmp_path / "absent.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(InputError, match=r"list\.yaml.*must be a mapping"):
        load_grid(tmp_path / "list.yaml")
    (tmp_path / "code.yaml").write_text("recipe: !!python/object/apply:os.getcwd []")
    with pytest.raises(FileError, match=r"code\.yaml"):
        load_grid(tmp_path / "code.yaml")
