"""docs/paper.md keeps its word: its names import, its tests, commands and files exist, its numbers are the committed ones."""

from __future__ import annotations

import csv
import importlib
import re
from pathlib import Path

import pytest
import typer

from calgrad.cli.paper import register
from calgrad.paper.gradient_vs_brier import band_widths, gradient_brier_rows
from calgrad.paper.items import ITEMS
from calgrad.paper.traces import trace_rows

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "paper.md").read_text()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(calgrad(?:\.\w+)+)`", TEXT))))
def test_every_name_imports(name):
    module, _, attribute = name.rpartition(".")
    try:
        assert getattr(importlib.import_module(module), attribute) is not None
    except AttributeError:
        importlib.import_module(name)


@pytest.mark.parametrize("test", sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", TEXT))))
def test_every_test_exists(test):
    path, _, function = test.partition("::")
    assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), re.M)


def test_every_command_exists_and_every_item_is_documented():
    app = typer.Typer()
    register(app)
    app.callback()(lambda: None)
    known = typer.main.get_command(app).commands["paper"].commands
    used = set(re.findall(r"calgrad paper ([\w-]+)", TEXT))
    assert used <= set(known)
    assert {item.name for item in ITEMS} | {"list", "collect"} <= used
    for command, words in re.findall(r"^calgrad paper ([\w-]+) (.*?)(?:\s+#.*)?$", TEXT, re.M):
        options = {option for parameter in known[command].params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)--?[a-z][\w-]*", words)) <= options


def test_pictures_and_files_exist():
    for picture in re.findall(r"\]\((img/[^)]+)\)", TEXT):
        assert (ROOT / "docs" / picture).exists()
        assert (ROOT / "docs" / picture).with_suffix(".svg").exists()
    for path in re.findall(r"`(results/paper/[\w.]+\.csv)`", TEXT):
        assert (ROOT / path).exists()
    for page in re.findall(r"\]\((\w+\.md)\)", TEXT):
        assert (ROOT / "docs" / page).exists()


def read(name):
    with (ROOT / "results" / "paper" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_floor_table_is_the_committed_one():
    for row in read("findings_floor"):
        line = next(x for x in TEXT.splitlines() if x.startswith(f"| {row['data']}, {row['model']} |"))
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[3] == f"{100 * float(row['difference']):+.2f}"
        assert cells[4] == f"{100 * float(row['floor']):.2f} ({100 * float(row['floor_sd']):.2f})"
        assert cells[6] == f"{float(row['in_sd']):+.1f}"


def test_the_minima_are_the_committed_ones():
    found = {(r["loss"], r["options"]): r for r in read("theory_minima") if r["classes"] == "5"}
    for title, key in (
        ("focal, gamma 3", ("focal", "gamma=3")),
        ("dual-gra, gamma 5", ("dual-gra", "gamma=5")),
        ("bsce-gra, gamma 2", ("bsce-gra", "gamma=2;beta=2")),
        ("bsce-gra, gamma 4", ("bsce-gra", "gamma=4;beta=2")),
    ):
        line = next(x for x in TEXT.splitlines() if x.startswith(f"| {title} |"))
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[1] == f"{float(found[key]['off_eta']):.3f}"
        assert cells[3] == f"{float(found[key]['confidence']):.3f}"


def test_the_digits_numbers_are_the_committed_ones():
    rows = read("digits.runs")

    def ece(loss, options="", column="ece"):
        wanted = set(filter(None, options.split(";")))
        values = [float(r[column]) for r in rows if r["loss"] == loss and wanted <= set(r["options"].split(";"))]
        assert len(values) == 3
        return 100 * sum(values) / 3

    text = re.sub(r"\s+", " ", TEXT)
    weighted = [ece("bsce-gra", f"beta=2;gamma={g}") for g in (1, 2, 3, 4)]
    assert (
        f"CE {ece('ce'):.2f}, BL {ece('brier'):.2f}, DFL {ece('dual'):.2f}, FLSD {ece('flsd53'):.2f}, FL {ece('focal'):.2f}, "
        f"BSCE-GRA with gamma 1, 2, 3, 4: {', '.join(f'{v:.2f}' for v in weighted)}." in text
    )
    assert (
        f"gamma = 3 reaches ECE {ece('bsce-gra', 'beta=1;gamma=3'):.2f} and BSCE {ece('bsce', 'beta=1;gamma=3'):.2f}"
        in text
    )
    assert f"NLL from {ece('ce', column='nll') / 100:.3f} to {ece('ce', column='nll_after_T') / 100:.3f}" in text
    after = [float(r["ece_after_T"]) for r in rows]
    assert len(after) == 66


def test_the_toy_table_is_the_committed_one():
    titles = {"brier-norm": "gBS", "dual": "DFL", "true-class": "FL"}
    places = {
        ("vector", "label"): 2,
        ("vector", "confidence"): 3,
        ("literal", "label"): 4,
        ("literal", "confidence"): 5,
    }
    rows = [r for r in read("toy_30runs") if r["rate"] == "0.01"]
    checked = 0
    for score, p, error in {(r["score"], r["p"], r["error"]) for r in rows}:
        values = [float(r["pearson"]) for r in rows if (r["score"], r["p"], r["error"]) == (score, p, error)]
        line = next(x for x in TEXT.splitlines() if re.match(rf"\| {titles[score]} \| 0\.", x))
        assert len(values) == 30
        assert line.strip("|").split("|")[places[error, p]].strip() == f"{sum(values) / 30:.3f}"
        checked += 1
    assert checked == 10


def test_the_band_widths_are_those_of_the_committed_gradients():
    rows = gradient_brier_rows(trace_rows([ROOT / "results" / "paper"], "gradients"))
    text = re.sub(r"\s+", " ", TEXT)
    early, late = (band_widths(rows, epoch, ["bsce-gra", "focal", "dual"]) for epoch in (2, 20))
    first = f"after 2 epochs BSCE-GRA {early['bsce-gra']:.2f}, FL {early['focal']:.2f}, DFL {early['dual']:.2f}"
    assert f"{first}; after 20 epochs {', '.join(f'{v:.2f}' for v in late.values())}." in text
