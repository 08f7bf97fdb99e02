"""`calgrad compare`: the main job, from arguments to files; nothing is trained twice, nothing is chosen on test."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

from calgrad.cli.app import build, run
from calgrad.cli.compare import _loss_texts, _seed_list

QUICK = ["--set", "epochs=2", "--set", "warmup=0", "--set", "checkpoint_every=0", "--jobs", "1"]


def compare(*arguments: str):
    return CliRunner().invoke(build("compare"), ["compare", *arguments, *QUICK], catch_exceptions=False)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    result = compare("digits", "--losses", "ce,bsce-gra:gamma=2,beta=2", "--seeds", "2", "-o", str(folder))
    assert result.exit_code == 0, result.output
    return folder, result.output


def test_prints_one_table_and_where_the_files_are(compared):
    folder, output = compared
    for word in (
        "as trained",
        "+ temperature",
        "+ link",
        "bsce-gra(gamma=2,beta=2)",
        "Holm",
        str(folder),
        "report.html",
    ):
        assert word in output
    names = {path.name for path in folder.iterdir()}
    assert {"compare.csv", "compare.json", "compare.md", "compare.tex", "compare.png", "report.html", "runs"} <= names
    assert len(list((folder / "runs").iterdir())) == 4


def test_its_numbers_are_those_of_the_predictions(compared):
    from calgrad import Predictions, evaluate

    folder, _ = compared
    with (folder / "runs.csv").open() as handle:
        rows = [r for r in csv.DictReader(handle) if r["view"] == "as trained" and r["loss"] == "ce"]
    assert len(rows) == 2
    for row in rows:
        test = Predictions.load(folder / "runs" / f"ce-seed{row['seed']}" / "predictions-test.npz")
        found = evaluate(test, bootstrap=0)
        assert float(row["ece"]) == pytest.approx(found.ece, abs=1e-6)
        assert float(row["nll"]) == pytest.approx(found.nll, abs=1e-6)


def test_a_second_call_trains_nothing_and_adds_what_is_asked(compared):
    folder, _ = compared
    records = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/record.json")}
    result = compare(
        "digits", "--losses", "ce brier", "--seeds", "2", "-o", str(folder), "--json", "--ensemble", "--no-page"
    )
    assert result.exit_code == 0, result.output
    stored = json.loads(result.stdout)
    assert {row["loss"] for row in stored["rows"]} == {"ce", "brier", "ce ensemble", "brier ensemble"}
    assert all(path.stat().st_mtime_ns == when for path, when in records.items())
    assert len(list(folder.glob("runs/brier-seed*"))) == 2


def test_select_chooses_on_validation(tmp_path):
    options = ["--losses", "ce,bsce-gra", "--seeds", "1", "--select", "--gammas", "1,4", "--no-page"]
    result = compare("digits", *options, "-o", str(tmp_path))
    assert result.exit_code == 0, result.output
    trials = json.loads((tmp_path / "compare.json").read_text())["about"]["selection"]
    assert [t["setting"] for t in trials] == ["bsce-gra(gamma=1,beta=2)", "bsce-gra(gamma=4,beta=2)"]
    best = min(trials, key=lambda t: t["val_nll"])
    assert best["chosen"]
    assert sum(t["chosen"] for t in trials) == 1
    assert f"selected on validation: {best['setting']}" in result.output
    val = json.loads((tmp_path / "runs" / f"{best['setting']}-seed1" / "record.json").read_text())["epochs"][-1]
    assert best["val_nll"] == pytest.approx(val["val_nll"], abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--losses", "bcse-gra"], "Did you mean 'bsce-gra'"),
        (["--losses", "bsce-gra:gama=3"], "gama"),
        (["--losses", "ce,ce"], "named twice"),
        (["--seeds", "0"], "expected numbers"),
        (["--seeds", "a,b"], "expected numbers"),
        (["--seeds", "1,1"], "named twice"),
        (["--set", "epoch=3"], "Did you mean 'epochs'"),
        (["no-such-recipe"], "no-such-recipe"),
    ],
)
def test_bad_arguments_exit_with_2_and_say_why(arguments, message, tmp_path, capsys):
    assert run(["compare", *arguments, "-o", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_words_for_losses_and_seeds():
    assert _loss_texts("ce,bsce-gra:gamma=3,beta=2 dual") == ["ce", "bsce-gra:gamma=3,beta=2", "dual"]
    assert _seed_list("3") == [1, 2, 3]
    assert _seed_list("1,42,71") == [1, 42, 71]
    assert _seed_list("7,") == [7]
