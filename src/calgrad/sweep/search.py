"""Which gamma and beta? A search on validation, with hopeless trials stopped early (extra `calgrad[search]`).

Optuna suggests settings of the loss; each is trained with one seed, reports its validation metric after every validated
epoch, and is pruned where it is worse than the median of the earlier trials at that epoch. The test set has no say: of a
trial only `val_*` numbers are read, and the trials' table has no others.

The study is a file in the folder (`study.log`, locked by Optuna as it is written), so the same call goes on where it stopped,
and several processes or machines that make the same call share the trials. A setting has one run folder: one that is
suggested again is not trained again, and one whose process died goes on from its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from calgrad.checks import InputError, one_of, positive_int
from calgrad.files import write_text
from calgrad.losses import LOSSES, make_loss
from calgrad.metrics import accuracy, brier, ece, nll
from calgrad.predictions import Predictions
from calgrad.sweep.choice import LossChoice
from calgrad.sweep.ledger import csv_text
from calgrad.sweep.schedule import SweepError
from calgrad.train import DivergedError, Recipe, Record, train
from calgrad.train.lock import LockedError, run_lock
from calgrad.train.record import RECORD

Range = tuple[float, float, float]
"""Lowest, highest, step."""

SPACE: dict[str, Range] = {"gamma": (0.5, 6.0, 0.5), "beta": (1.0, 4.0, 0.5)}
GRACE = 5.0
"""Seconds between a trial's birth and the lock on its folder, at most."""
CRITERIA: dict[str, Callable[..., float]] = {"nll": nll, "brier": brier, "ece": ece}
"""What a setting can be chosen by, on validation; all are smaller for better."""


@dataclass(frozen=True)
class Found:
    """What a search found: the best setting, its value on validation, and a row a trial."""

    best: LossChoice
    value: float
    trials: list[dict[str, Any]]


def search(
    recipe: Recipe,
    folder: str | Path,
    *,
    space: Mapping[str, Range] = SPACE,
    trials: int = 20,
    by: str = "nll",
    seed: int = 1,
    device: str | None = None,
    data_root: str | None = None,
    on_trial: Callable[[dict[str, Any]], None] | None = None,
) -> Found:
    """Search the options of the recipe's loss on validation.

    Args:
        recipe: What to train; its `loss` is the one whose options are searched.
        folder: Where the study and the trials' runs go.
        space: Option -> (lowest, highest, step); those that the loss does not have are left out.
        trials: How many in all, earlier calls included.
        by: What to minimise on validation: nll, brier or ece.
        seed: Of every trial's training, and of the sampler.
        device: As for `train`.
        data_root: As for `train`.
        on_trial: Called with each trial's row.
    """
    one_of("by", by, tuple(CRITERIA))
    positive_int("trials", trials)
    optuna = _optuna()
    folder = Path(folder)
    own = {k: v for k, v in space.items() if k in LOSSES[recipe.loss].defaults and k not in recipe.loss_options}
    if not own:
        raise InputError(f"the loss {recipe.loss!r} has none of the options {', '.join(space)} left to search")
    for name, (low, high, step) in own.items():
        if not (low <= high and step > 0):
            raise InputError(
                f"`{name}` must be searched from low to high by a step above zero, got {low}:{high}:{step}"
            )
    study = _open_study(optuna, recipe, folder, by, seed)

    def objective(trial: Any) -> float:
        # Rounded, or 3 * 0.1 would be another setting than 0.3, with a folder of its own.
        options = {k: round(trial.suggest_float(k, low, high, step=s), 10) for k, (low, high, s) in own.items()}
        setting = recipe.replace(loss_options={**recipe.loss_options, **options})
        make_loss(setting.loss, **setting.loss_options)
        place = trial_folder(folder, options, seed)
        trial.set_user_attr("folder", str(place.relative_to(folder)))
        said: set[int] = set()

        def report(entry: Mapping[str, Any], *, pruning: bool = True) -> None:
            if f"val_{by}" not in entry or entry["epoch"] in said:
                return
            said.add(entry["epoch"])
            trial.report(entry[f"val_{by}"], entry["epoch"])
            if pruning and entry["epoch"] < setting.epochs and trial.should_prune():
                raise optuna.TrialPruned(f"worse than the median at epoch {entry['epoch']}")

        if (place / RECORD).exists():  # it goes on from a checkpoint, and earlier epochs are not heard again
            for entry in Record.load(place).epochs:
                report(entry, pruning=False)
        try:
            train(
                setting, seed, folder=place, device=device, data_root=data_root, evaluate=_validation, on_epoch=report,
                quiet=True,
            )  # fmt: skip
        except DivergedError as error:  # as hopeless as a trial can be
            raise optuna.TrialPruned(str(error)) from error
        return float(Record.load(place).epochs[-1][f"val_{by}"])

    def told(study: Any, trial: Any) -> None:
        write_text(folder / "trials.csv", csv_text(_rows(study, by)))
        if on_trial:
            on_trial(_row(trial, by))
        if trial.state == optuna.trial.TrialState.FAIL:
            time.sleep(1)

    _revive(optuna, study, folder)
    finished = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    while len(study.get_trials(deepcopy=False, states=finished)) < trials:
        # A locked folder is another process at work on the same setting: a failed trial here, and its result over there.
        study.optimize(objective, n_trials=1, catch=(LockedError,), callbacks=[told])
    if not study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)):
        raise SweepError(f"all {trials} trials were pruned or diverged; see {folder / 'trials.csv'}")
    best = LossChoice(recipe.loss, {**recipe.loss_options, **_rounded(study.best_params)})
    return Found(best, float(study.best_value), _rows(study, by))


def trial_folder(folder: Path, options: Mapping[str, float], seed: int) -> Path:
    """Where a setting is trained: one place each, whoever suggests it."""
    return folder / "trials" / ",".join(f"{k}={v:g}" for k, v in sorted(options.items())) / f"seed-{seed}"


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise InputError("a search needs the extra: pip install 'calgrad[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _open_study(optuna: Any, recipe: Recipe, folder: Path, by: str, seed: int) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    folder.mkdir(parents=True, exist_ok=True)
    # A median over few trials, or over epochs before the learning rate has come down, prunes at random.
    pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=max(2, recipe.epochs // 3))
    return optuna.create_study(
        study_name=f"{recipe.fingerprint()}-{by}-seed{seed}",  # another recipe in this folder is another study
        storage=JournalStorage(JournalFileBackend(str(folder / "study.log"))),
        sampler=optuna.samplers.TPESampler(seed=seed + _trials_before(folder)),
        pruner=pruner,
        direction="minimize",
        load_if_exists=True,
    )


def _trials_before(folder: Path) -> int:
    """A sampler that starts anew with the same seed would suggest the same settings anew."""
    path = folder / "trials.csv"
    return len(path.read_text().splitlines()) if path.exists() else 0


def _revive(optuna: Any, study: Any, folder: Path) -> None:
    """Trials whose process is gone are told as failed, and their settings are the next to be tried."""
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        if (datetime.now() - trial.datetime_start).total_seconds() < GRACE:
            continue  # it may be about to take its lock
        place = folder / trial.user_attrs.get("folder", "nowhere")
        try:
            if place.is_dir():
                with run_lock(place):
                    pass
        except LockedError:
            continue  # somebody is at it
        try:
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        except (ValueError, RuntimeError):  # another process was faster
            continue
        if trial.params:
            study.enqueue_trial(trial.params)


def _validation(predictions: Predictions) -> dict[str, float]:
    return {
        name: float(metric(logits=predictions.logits, labels=predictions.labels))
        for name, metric in {"accuracy": accuracy, **CRITERIA}.items()
    }


def _rounded(params: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 10) for name, value in params.items()}


def _rows(study: Any, by: str) -> list[dict[str, Any]]:
    return [_row(trial, by) for trial in study.get_trials(deepcopy=False)]


def _row(trial: Any, by: str) -> dict[str, Any]:
    """A trial as a line of trials.csv: nothing of the test set is in it."""
    last = max(trial.intermediate_values, default=0)
    value = trial.value if trial.value is not None else trial.intermediate_values.get(last)
    return {
        "trial": trial.number,
        **_rounded(trial.params),
        "state": trial.state.name.lower(),
        "epochs": last,
        f"val_{by}": value,
        "folder": trial.user_attrs.get("folder", ""),
    }
