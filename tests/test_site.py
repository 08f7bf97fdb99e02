"""The documentation site: it builds strictly, its code runs, and its numbers are those of the result files."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
VIEWS = ("as trained", "temperature", "link", "link-temperature")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_it_builds_strictly(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stderr[-3000:]
    reference = (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    for module, members in re.findall(r"::: (\S+)\n    options:\n      members: \[(.*?)\]", page("api.md")):
        for name in members.split(", "):
            assert f'id="{module}.{name}"' in reference, f"{module}.{name} is not in the API reference"


def test_every_page_is_in_the_navigation():
    def files(entry):
        if isinstance(entry, str):
            return [entry]
        return [name for part in (entry.values() if isinstance(entry, dict) else entry) for name in files(part)]

    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(files(navigation)) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


@pytest.mark.parametrize("name", ["start.md", "migration.md"])
def test_the_pages_code_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page(name), re.DOTALL)
    assert blocks
    scope: dict = {}
    for block in blocks:
        exec(compile(block, name, "exec"), scope)


def test_the_names_of_the_migration_page_exist():
    import calgrad

    for name in re.findall(r"calgrad\.((?:metrics\.)?\w+)\(", page("migration.md")):
        target = calgrad
        for part in name.split("."):
            target = getattr(target, part)
        assert callable(target), name
    for loss in re.findall(r'make_loss\("([\w-]+)"', page("migration.md")):
        assert loss in calgrad.LOSSES
    table = page("migration.md").split("## Calibrators")[1].split("CalibratedClassifierCV")[0]
    for row in re.findall(r"\| ([^|]*) \|\n", table):
        for calibrator in re.findall(r'"([a-z-]+)"', row):
            assert calibrator in calgrad.CALIBRATORS, calibrator


@pytest.mark.parametrize("folder", ["digits", "cifar10-short"])
def test_the_decision_pages_tables_are_the_results(folder):
    with (ROOT / "results" / folder / "compare.csv").open(encoding="utf-8") as opened:
        found = {(row["loss"], row["view"]): row for row in csv.DictReader(opened)}
    section = page("which.md").split(f"results/{folder}/compare.csv")[1].split("## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", section, re.MULTILINE)
    assert len(rows) >= 6
    for loss, cells in rows:
        expected = [f"{100 * float(found[loss, 'as trained']['accuracy']):.2f}"]
        for metric, style in (("ece", "{:.2f}"), ("nll", "{:.4f}")):
            scale = 100 if metric == "ece" else 1
            for view in VIEWS:
                row = found.get((loss, view))
                expected.append("-" if row is None else style.format(scale * float(row[metric])))
        assert cells.split(" | ") == expected, f"{folder}, {loss}: the file has {' | '.join(expected)}"


def test_the_gammas_of_the_decision_page():
    with (ROOT / "results" / "paper" / "gamma_beta.csv").open(encoding="utf-8") as opened:
        rows = [row for row in csv.DictReader(opened) if row["loss"] == "bsce-gra" and row["beta"] == "2"]
    values = ", ".join(f"{100 * float(row['ece']):.2f}" for row in sorted(rows, key=lambda row: float(row["gamma"])))
    assert f"has ECE {values} as trained" in page("which.md")


def test_every_speed_is_a_measured_one():
    with (ROOT / "benchmarks" / "results.csv").open(encoding="utf-8") as opened:
        measured = {row["value"] for row in csv.DictReader(opened)}
    numbers = page("comparison.md").split("## Numbers")[1].split("## ")[0]
    quoted = re.findall(r"\d+\.\d+|\b5158\b", numbers)
    assert len(quoted) > 15
    assert [number for number in quoted if number not in measured] == []
    cost = page("which.md").split("## What it costs")[1]
    assert [n for n in re.findall(r"\d+\.\d{3,}", cost) if n not in measured] == []
