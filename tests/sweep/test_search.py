"""The search on validation: the best of its trials, hopeless ones stopped, the test set untouched."""

from __future__ import annotations

import csv
import sys

import pytest

from calgrad.checks import InputError
from calgrad.recipes import load_recipe
from calgrad.sweep import search as module
from calgrad.sweep.search import search
from calgrad.train import Record

RECIPE = load_recipe("digits").replace(
    model="mlp", model_options={}, epochs=4, warmup=1, eval_every=1, checkpoint_every=1, loss="bsce-gra"
)
SPACE = {"gamma": (0.5, 6.0, 0.5), "beta": (1.0, 3.0, 0.5)}


def test_search_without_the_extra_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"pip install 'calgrad\[search\]'"):
        search(RECIPE, tmp_path)


def read(folder):
    with (folder / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_best_is_the_best_on_validation_and_the_test_set_has_no_say(tmp_path):
    pytest.importorskip("optuna", reason="needs the extra: pip install 'calgrad[search]'")
    heard = []
    found = search(RECIPE, tmp_path, space=SPACE, trials=10, on_trial=heard.append)
    complete = [trial for trial in found.trials if trial["state"] == "complete"]
    pruned = [trial for trial in found.trials if trial["state"] == "pruned"]
    assert len(heard) == len(complete) + len(pruned) == 10
    assert found.value == min(trial["val_nll"] for trial in complete)
    best = next(trial for trial in complete if trial["val_nll"] == found.value)
    assert found.best.options == {"gamma": best["gamma"], "beta": best["beta"]}
    assert Record.load(tmp_path / best["folder"]).epochs[-1]["val_nll"] == found.value
    assert pruned
    assert all(trial["epochs"] < 4 for trial in pruned)
    assert all(Record.load(tmp_path / trial["folder"]).status != "finished" for trial in pruned)
    assert set(read(tmp_path)[0]) == {"trial", "gamma", "beta", "state", "epochs", "val_nll", "folder"}

    # Scrambling the test predictions changes nothing; the same call makes no further trial.
    for path in tmp_path.rglob("predictions-test.npz"):
        path.write_bytes(b"nobody looks")
    assert search(RECIPE, tmp_path, space=SPACE, trials=10) == found
    assert len(search(RECIPE, tmp_path, space=SPACE, trials=11).trials) == 11


def test_a_trial_whose_process_died_is_taken_up_again(tmp_path, monkeypatch):
    optuna = pytest.importorskip("optuna", reason="needs the extra: pip install 'calgrad[search]'")
    real, calls = module.train, []

    def dies_once(recipe, seed, **options):
        calls.append(dict(recipe.loss_options))
        if len(calls) == 1:
            raise SystemExit  # no chance to tell the study anything
        return real(recipe, seed, **options)

    monkeypatch.setattr(module, "train", dies_once)
    monkeypatch.setattr(optuna.study._optimize, "_run_trial", died_without_a_word(optuna), raising=True)
    with pytest.raises(SystemExit):
        search(RECIPE, tmp_path, space=SPACE, trials=2)
    monkeypatch.undo()
    monkeypatch.setattr(module, "train", dies_once)
    monkeypatch.setattr(module, "GRACE", 0.0)
    found = search(RECIPE, tmp_path, space=SPACE, trials=2)
    assert [trial["state"] for trial in found.trials] == ["fail", "complete", "complete"]
    assert calls[0] == calls[1]


def died_without_a_word(optuna):
    """A trial that stays RUNNING in the study, as after SIGKILL."""

    def run(study, func, catch):
        func(study.ask())

    return run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "accuracy"}, "`by` must be one of"),
        ({"trials": 0}, "`trials`"),
        ({"space": {"gama": (1, 2, 1)}}, "none of the options gama"),
        ({"space": {"gamma": (2, 1, 1)}}, "from low to high"),
    ],
)
def test_mistakes(tmp_path, options, message):
    pytest.importorskip("optuna", reason="needs the extra: pip install 'calgrad[search]'")
    with pytest.raises(InputError, match=message):
        search(RECIPE, tmp_path, **options)
