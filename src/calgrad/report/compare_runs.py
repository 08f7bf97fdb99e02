"""The runs behind a comparison: planned, made where they are missing, and read back.

    folder/runs/<loss>-seed<seed>/      one run folder each

gamma and beta can be selected on validation: each setting is trained with the first seed, the one with the lowest validation
NLL (or another metric of the validation set) wins, and only then is it trained with the other seeds. The test set has no say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from calgrad.checks import InputError, one_of
from calgrad.losses import make_loss
from calgrad.metrics import brier, ece, nll
from calgrad.predictions import Predictions
from calgrad.report.comparison import Candidate
from calgrad.sweep import LossChoice, Run, run_all, settings_of
from calgrad.train import Recipe, Record

DEFAULT_LOSSES = ("ce", "brier", "mmce", "flsd53", "dual", "bsce", "bsce-gra")
SELECTED = {"gamma": (1, 2, 3, 4, 5), "beta": (2,)}
"""The grid of `--select`. beta stays at the Brier score's 2 unless asked: on validation it is hard to tell from gamma."""

CRITERIA: dict[str, Callable[..., float]] = {"nll": nll, "brier": brier, "ece": ece}
"""What a setting can be selected by; all are smaller for better."""


def plan(recipe: Recipe, choices: Sequence[LossChoice], seeds: Sequence[int], folder: Path) -> list[Run]:
    """Every run of a comparison, seeds side by side, so that a first seed of all losses is ready early."""
    if len({c.label for c in choices}) < len(choices):
        raise InputError(f"a loss is named twice: {', '.join(c.label for c in choices)}")
    if len(set(seeds)) < len(seeds):
        raise InputError(f"a seed is named twice: {', '.join(map(str, seeds))}")
    runs = []
    for seed, choice in itertools.product(seeds, choices):
        own = recipe.replace(loss=choice.name, loss_options=dict(choice.options))
        runs.append(Run(own, seed, folder / "runs" / f"{choice.label}-seed{seed}"))
    return runs


def select(
    recipe: Recipe,
    choices: Sequence[LossChoice],
    seed: int,
    folder: Path,
    *,
    only: Sequence[str] = ("bsce", "bsce-gra"),
    grid: Mapping[str, Sequence[float]] = SELECTED,
    by: str = "nll",
    **run_options: Any,
) -> tuple[list[LossChoice], list[dict[str, Any]]]:
    """The best setting of each loss in `only` on the validation set, and every trial that was looked at."""
    one_of("by", by, tuple(CRITERIA))
    trials = [settings_of(choice, grid) if choice.name in only else [choice] for choice in choices]
    searched = [setting for settings in trials if len(settings) > 1 for setting in settings]
    runs = plan(recipe, searched, [seed], folder)
    run_all(runs, **run_options)
    scores = {}
    for setting, run in zip(searched, runs, strict=True):
        val = read_predictions(run.folder, "val")
        scores[setting.label] = CRITERIA[by](logits=val.logits, labels=val.labels)
    chosen, table = [], []
    for choice, settings in zip(choices, trials, strict=True):
        best = min(settings, key=lambda s: scores[s.label]) if len(settings) > 1 else settings[0]
        chosen.append(best)
        if len(settings) > 1:
            table += [
                {"loss": choice.name, "setting": s.label, f"val_{by}": scores[s.label], "chosen": s is best}
                for s in settings
            ]
    return chosen, table


def read_predictions(folder: Path, split: str) -> Predictions:
    """The predictions a finished run left for "val" or "test"."""
    return Predictions.load(folder / Record.load(folder).files[split])


def read_candidate(run: Run) -> Candidate:
    """A finished run, ready to be judged."""
    choice = LossChoice(run.recipe.loss, run.recipe.loss_options)
    module = make_loss(choice.name, **choice.options)
    return Candidate(
        choice.label, run.seed, module, read_predictions(run.folder, "val"), read_predictions(run.folder, "test")
    )
