"""`calgrad sweep` and `calgrad search` from end to end."""

from __future__ import annotations

import csv
import json
import sys

import pytest

from calgrad.cli.app import run

FLAGS = [
    "sweep",
    "--recipe",
    "digits",
    "--losses",
    "ce,bsce-gra:gamma=2,beta=1",
    "--seeds",
    "1",
    "--vary",
    "lr=[0.05,0.1]",
]
FLAGS += [
    "--set",
    "epochs=1",
    "--set",
    "warmup=0",
    "--set",
    "model=mlp",
    "--set",
    "model_options={}",
    "--device",
    "cpu",
]


def rows(folder):
    with (folder / "results.csv").open() as file:
        return list(csv.DictReader(file))


def test_plan_then_runs_then_only_what_is_missing(tmp_path, capsys):
    words = [*FLAGS, "-o", str(tmp_path), "--engine", "here"]
    assert run([*words, "--dry-run"]) == 0
    assert "4 runs, 4 to make: 4,000 images" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert run(words) == 0
    assert "4 of 4 runs are done; 4 rows" in capsys.readouterr().err
    assert [(r["loss"], r["options"]) for r in rows(tmp_path)] == [("bsce-gra", "beta=1;gamma=2")] * 2 + [
        ("ce", "")
    ] * 2
    assert len({r["settings"] for r in rows(tmp_path)}) == 2  # two learning rates
    assert run([*words, "--seeds", "1,2"]) == 0
    assert capsys.readouterr().err.count("done: ") == 4
    assert len(rows(tmp_path)) == 8
    assert run([*words, "--seeds", "1,2", "--dry-run"]) == 0
    assert "8 runs, 0 to make" in capsys.readouterr().out


def test_a_failed_run_is_named_kept_in_the_events_and_costs_only_itself(tmp_path, capsys):
    words = [*FLAGS, "-o", str(tmp_path), "--engine", "here", "--vary", "lr=[0.05,1e30]", "--losses", "ce"]
    assert run(words) == 1
    printed = capsys.readouterr().err
    assert "1 of 2 runs failed" in printed
    assert "learning rate" in printed
    assert len(rows(tmp_path)) == 1
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert sorted(event["event"] for event in events) == ["done", "failed"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep"], "give a grid"),
        (["sweep", "digits", "--recipe", "digits"], "give a grid"),
        (["sweep", "nothing"], "unknown grid 'nothing'"),
        (["sweep", "digits", "--engine", "dask"], "'local', 'ray', 'here'"),
        (["sweep", "digits", "--seeds", "x"], "whole numbers"),
        (["search", "digits", "--space", "gamma=1"], "option=low:high:step"),
    ],
)
def test_usage_errors(words, message, capsys):
    assert run(words) == 2
    assert message in capsys.readouterr().err


def test_ray_without_the_extra_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(["sweep", "digits", "--engine", "ray", "-o", str(tmp_path)]) == 2
    assert "pip install 'calgrad[ray]'" in capsys.readouterr().err


def test_search(tmp_path, capsys):
    pytest.importorskip("optuna", reason="needs the extra: pip install 'calgrad[search]'")
    words = [
        "search",
        "digits",
        "--set",
        "epochs=1",
        "--set",
        "warmup=0",
        "--set",
        "model=mlp",
        "--set",
        "model_options={}",
    ]
    words += ["--space", "gamma=1:3:1", "--trials", "3", "-o", str(tmp_path), "--device", "cpu"]
    assert run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["val_nll"] == min(trial["val_nll"] for trial in found["trials"])
    assert run(words) == 0
    assert f"best on validation: bsce-gra(gamma={found['best']['gamma']:g})" in capsys.readouterr().out
