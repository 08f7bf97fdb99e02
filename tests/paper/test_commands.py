"""The commands themselves, as typed."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from calgrad.cli.paper import register
from calgrad.paper.items import ITEMS


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.callback()
    def root() -> None:
        pass

    register(app)
    return app


@pytest.fixture
def run(app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def invoke(*words, fails=False):
        result = CliRunner().invoke(app, ["paper", *map(str, words)])
        if not fails:
            assert result.exit_code == 0, (result.output, result.exception)
        return result

    return invoke


def test_every_item_is_a_command_and_listed(app, run):
    names = set(typer.main.get_command(app).commands["paper"].commands)
    assert {item.name for item in ITEMS} <= names
    assert names - {item.name for item in ITEMS} == {"list", "collect"}
    listed = run("list").output
    for item in ITEMS:
        assert item.name in listed
        assert item.cost in listed
    assert "needs GPU hours" in listed
    assert "reproduced here" in listed
    assert "beyond the paper" in listed


def test_cheap_items(run, tmp_path):
    assert "+0.14" in run("findings").output
    assert (tmp_path / "results/paper/findings_floor.csv").exists()
    for name in ("fig-focal-gradient", "fig-weights"):
        paths = run(name, "-o", tmp_path / "data", "--pictures", tmp_path / "img").output.split()
        assert [p.rsplit(".")[-1] for p in paths] == ["csv", "png", "svg"]


def test_tables_from_runs_and_collected_files(run, digit_runs, tmp_path):
    run("collect", digit_runs, "-o", tmp_path / "results/digits")
    assert "no run" in run("table-ece", "--cells", "cifar10/resnet50").output
    for form, mark in (("markdown", "| ---"), ("latex", r"\toprule"), ("csv", "section,loss")):
        assert mark.split()[0] in run("table-ece", "-f", form).output
    assert "bsce-gra" in run("table-efficiency").output
    for name in ("fig-ece-over-epochs", "fig-gradient-density"):
        table, *_ = run(name, "-o", tmp_path / "figures").output.split()
        live, *_ = run(name, "--runs", digit_runs, "-o", tmp_path / "live").output.split()
        assert len(Path(table).read_text().splitlines()) == len(Path(live).read_text().splitlines()) > 10
    run("fig-gamma-beta", "-o", tmp_path / "figures", "--cell", "digits/mlp")


def test_without_runs_a_figure_says_what_to_run(run):
    result = run("fig-gradient-density", fails=True)
    assert "calgrad compare digits" in str(result.exception)
    result = run("table-ece", "--format", "html", fails=True)
    assert "`format` must be one of" in str(result.exception)


def test_run_shows_the_cost_first_and_asks(run, monkeypatch):
    asked = run("table-ece", "--run", "--cells", "cifar10/resnet50", "--seeds", "1", fails=True)
    assert asked.exit_code == 1
    assert "7 runs planned, 7 to make: 110,250,000 images, about 1.7 hours" in asked.output
    assert "measured on one H200" in asked.output


def test_run_makes_what_is_missing_and_resumes(run, tmp_path, monkeypatch):
    """A cell of a table, run for real: the recipe replaced by one that a test can afford."""
    from calgrad.paper import plan

    words = ["table-vit", "--run", "--yes", "--recipe", "digits", "--seeds", "1", "--losses", "ce", "--set", "epochs=1"]
    words += ["--set", "warmup=0", "--jobs", "1", "--device", "cpu", "--folder", tmp_path / "runs"]
    # The cell's network is a ViT; for the test the plan keeps the digits' own.
    recipe = plan.load_recipe("digits")
    monkeypatch.setattr(plan, "load_recipe", lambda name: _Fixed(recipe))
    first = run(*words)
    assert "1 runs planned, 1 to make" in first.output
    again = run(*words)
    assert "1 runs planned, 0 to make" in again.output


class _Fixed:
    """A recipe whose network stays as it is."""

    def __init__(self, recipe):
        self.recipe, self.seeds = recipe, recipe.seeds

    def replace(self, model, **changes):
        return self.recipe.replace(**changes)
