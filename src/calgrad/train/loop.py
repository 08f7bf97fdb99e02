"""`train(recipe, seed)`: from a recipe to a run folder.

Steps, then once an epoch: read the loss (the only sync), stop if it is not a number, validate, feed losses that learn
from validation, note it all in the record, write a checkpoint. Whatever kills the process, the same call goes on from
the last checkpoint; on a CPU it ends with the same bits as a run that nothing stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from calgrad.files import make_folder
from calgrad.predictions import Predictions
from calgrad.train.determinism import chosen_kernels
from calgrad.train.distributed import process_group
from calgrad.train.ends import check_finite, leave
from calgrad.train.folders import clear, default_folder, is_finished
from calgrad.train.gradients import last_layer_gradients, save_gradients
from calgrad.train.graph import prepare
from calgrad.train.lock import run_lock
from calgrad.train.memory import explained
from calgrad.train.optim import learning_rate
from calgrad.train.progress import Progress, open_progress, open_tensorboard
from calgrad.train.recipe import Recipe
from calgrad.train.record import now
from calgrad.train.run import Run, build_run
from calgrad.train.signals import Interrupted, StopRequest
from calgrad.train.weights import WEIGHTS

Evaluate = Callable[[Predictions], Mapping[str, float]]
OnEpoch = Callable[[Mapping[str, Any]], None]

AGREE_EVERY = 20
"""Steps after which several processes ask each other whether to stop."""


def train(
    recipe: Recipe,
    seed: int,
    *,
    folder: str | Path | None = None,
    resume: bool = True,
    overwrite: bool = False,
    device: str | None = None,
    data_root: str | Path | None = None,
    evaluate: Evaluate | None = None,
    on_epoch: OnEpoch | None = None,
    tensorboard: bool = False,
    quiet: bool = False,
) -> Path:
    """Train and return the run folder: record.json, weights, predictions for val and test, checkpoints.

    A finished run is returned as it is. An unfinished one goes on from its last checkpoint. A folder made by another
    recipe or seed is refused.

    Args:
        recipe: What to do.
        seed: Decides initialisation, order and augmentation.
        folder: The run folder; by default `runs/<recipe>/<loss>/seed-<seed>`.
        resume: Go on from a checkpoint; False starts an unfinished run anew.
        overwrite: Start anew whatever is in the folder.
        device: cpu, cuda or cuda:N; by default CUDA where there is one. Under `torchrun` each process takes its own.
        data_root: Where data sets are; by default as `calgrad.data.load_data` says.
        evaluate: What to measure on validation each time: predictions in, numbers by name out. By default accuracy, NLL
            and ECE.
        on_epoch: Called with each epoch's entry of the record.
        tensorboard: Write TensorBoard logs into the folder too (needs the extra `tensorboard`).
        quiet: Show no progress; without it, progress is shown on a terminal.

    Example:
        >>> import tempfile
        >>> from calgrad.train import Recipe, Record, train
        >>> recipe = Recipe(data="digits", model="mlp", epochs=2, checkpoint_every=0)
        >>> folder = train(recipe, seed=1, folder=tempfile.mkdtemp(), quiet=True)
        >>> Record.load(folder).status
        'finished'
    """
    folder = Path(folder) if folder is not None else default_folder(recipe, seed)
    with process_group(device) as (group, chosen), _kept_rng(chosen):
        if not overwrite and is_finished(folder, recipe, seed):
            return folder
        group.barrier()  # every process has looked before the first one writes
        if group.leads:
            make_folder(folder)
        with run_lock(folder) if group.leads else nullcontext(), chosen_kernels(chosen):
            if group.leads and (overwrite or not resume):
                clear(folder)
            group.barrier()
            if not overwrite and is_finished(folder, recipe, seed):  # by whoever held the lock until now
                return folder
            run = build_run(recipe, seed, folder, device=chosen, group=group, data_root=data_root)
            run.resume()
            if group.leads:
                run.record.status = "running"
                run.record.save(folder)
            shown = open_progress(recipe, len(run.feed.sizes), enabled=group.leads and not quiet)
            board = open_tensorboard(folder) if tensorboard and group.leads else None
            with StopRequest() as stop, shown, explained(run):
                _go(run, stop, shown, evaluate or validation_metrics, [f for f in (on_epoch, board) if f])
    return folder


def validation_metrics(predictions: Predictions) -> dict[str, float]:
    """The default of `train`'s `evaluate`: accuracy, NLL and ECE."""
    from calgrad.metrics import accuracy, ece, nll

    measures = {"accuracy": accuracy, "nll": nll, "ece": ece}
    return {name: float(f(logits=predictions.logits, labels=predictions.labels)) for name, f in measures.items()}


# ------------------------------------------------------------------------------------------------------------- the run


def _go(run: Run, stop: StopRequest, shown: Progress, evaluate: Evaluate, listeners: list[OnEpoch]) -> None:
    if run.epoch < run.recipe.epochs:
        run.begin_epoch()
        prepared = prepare(run.step, run.recipe.compile, device=run.device)
        run.record.device["step"] = prepared.mode
        run.record.add("compile", prepared.seconds)
        if prepared.note:
            run.record.note(prepared.note)
    while run.epoch < run.recipe.epochs:
        entry = _epoch(run, stop, shown)
        _after_epoch(run, entry, evaluate)
        for listener in listeners:
            listener(entry)
        shown.epoch(entry)
        _leave_if_asked(run, stop)
    _finish(run)
    if stop.number:  # the run is done, but whoever asked to stop wants no other one after it
        raise Interrupted(f"stopped by signal {stop.number}; {run.folder} is finished", stop.number)


def _epoch(run: Run, stop: StopRequest, shown: Progress) -> dict[str, Any]:
    """The steps of the epoch, or what is left of it."""
    started = time.perf_counter()
    recipe, sizes = run.recipe, run.feed.sizes
    first = run.position
    run.begin_epoch()
    while run.position < len(sizes):
        run.step(sizes[run.position])
        run.position += 1
        shown.step()
        if run.group.world == 1 or run.position % AGREE_EVERY == 0:
            late = time.monotonic() - run.saved_at > 60 * recipe.checkpoint_minutes
            if stop.number or late or run.group.world > 1:
                stopping, late = run.group.any(bool(stop.number), late, device=run.device)
                if stopping:
                    check_finite(run, float(run.step.total))
                    leave(run, stop)
                if late:
                    check_finite(run, float(run.step.total))
                    run.checkpoint()
    total = float(run.step.total)  # the epoch's one sync
    check_finite(run, total)
    seconds = time.perf_counter() - started
    run.record.add("train", seconds)
    run.record.add("images", sum(sizes[first:]))
    return {
        "epoch": run.epoch + 1,
        "lr": learning_rate(recipe, run.epoch * len(sizes), len(sizes)),
        "train_loss": total / sum(sizes),
        "seconds": round(seconds, 4),
    }


def _after_epoch(run: Run, entry: dict[str, Any], evaluate: Evaluate) -> None:
    recipe, record = run.recipe, run.record
    run.epoch, run.position = run.epoch + 1, 0
    last = run.epoch == recipe.epochs
    started = time.perf_counter()
    if last or run.epoch % recipe.eval_every == 0:
        with run.evaluated_weights():
            logits, labels, ids = run.logits("val")
        check_finite(run, float(logits.sum()))
        if run.group.leads:
            measured = evaluate(run.predictions("val", logits, labels, ids))
            entry.update({f"val_{name}": float(value) for name, value in measured.items()})
        if hasattr(run.loss, "update"):
            run.loss.update(logits, labels)  # type: ignore[operator]
    if run.epoch in recipe.gradient_epochs:
        with run.evaluated_weights():
            _save_gradients(run)
            _save_predictions(run, "test", after=run.epoch)
    record.add("evaluate", time.perf_counter() - started)
    record.epochs.append(entry)
    if recipe.checkpoint_every and (last or run.epoch % recipe.checkpoint_every == 0):
        run.checkpoint()


def _finish(run: Run) -> None:
    record, started = run.record, time.perf_counter()
    with run.evaluated_weights():
        for split in ("val", "test"):
            _save_predictions(run, split)
        if run.group.leads:
            run.save_weights()
            record.files["weights"] = WEIGHTS
    record.add("evaluate", time.perf_counter() - started)
    if record.timings.get("train"):
        record.timings["images_per_second"] = round(record.timings["images"] / record.timings["train"], 1)
    parts = ("setup", "compile", "train", "evaluate", "checkpoint")
    record.timings["total"] = round(sum(record.timings.get(part, 0.0) for part in parts), 4)
    record.status, record.finished = "finished", now()
    if run.group.leads:
        record.save(run.folder)
    run.group.barrier()


def _save_predictions(run: Run, split: str, *, after: int | None = None) -> None:
    """Write a part's predictions: the run's own, or those `after` an epoch, which no choice is ever made by."""
    logits, labels, ids = run.logits(split)
    if run.group.leads:
        name = f"predictions-{split}.npz" if after is None else f"predictions-{split}-epoch-{after:03d}.npz"
        run.predictions(split, logits, labels, ids).save(run.folder / name)
        run.record.files[split if after is None else f"{split}_{after}"] = name


def _save_gradients(run: Run) -> None:
    columns = last_layer_gradients(
        run.net, run.loss, run.data.train, run.recipe, device=run.device, group=run.group
    )  # fmt: skip
    if run.group.leads:
        name = f"gradients-epoch-{run.epoch:03d}.npz"
        save_gradients(run.folder / name, columns)
        run.record.files[f"gradients_{run.epoch}"] = name


# ------------------------------------------------------------------------------------------------- ends before the end


def _leave_if_asked(run: Run, stop: StopRequest) -> None:
    (stopping,) = run.group.any(bool(stop.number), device=run.device)
    if stopping and run.epoch < run.recipe.epochs:
        leave(run, stop)


def _kept_rng(device: torch.device) -> Any:
    """Training seeds the global generators; the caller's are put back afterwards."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
