"""Ends before the end: a signal, or a loss that is no longer a number."""

from __future__ import annotations

import math
from typing import NoReturn

from calgrad.checks import CalgradError
from calgrad.train.checkpoint import list_checkpoints
from calgrad.train.optim import learning_rate
from calgrad.train.run import CHECKPOINTS, Run
from calgrad.train.signals import Interrupted, StopRequest


class DivergedError(CalgradError):
    """The loss is no longer a number."""


def leave(run: Run, stop: StopRequest) -> NoReturn:
    """Write a checkpoint and say where the run will go on."""
    run.record.status = "interrupted"
    path = run.checkpoint()
    number = stop.number or 2
    where = f"epoch {run.epoch + 1}, step {run.position} of {len(run.feed.sizes)}"
    written = f"{path or 'a checkpoint'} is written, and the same command goes on from there"
    raise Interrupted(f"stopped by signal {number} at {where}; {written}", number)


def check_finite(run: Run, value: float) -> None:
    """Stop a run whose loss (or logits) came out as `value`, unless that is a number."""
    if math.isfinite(value):
        return
    kept = list_checkpoints(run.folder / CHECKPOINTS)
    rate = learning_rate(run.recipe, max(run.steps_done - 1, 0), len(run.feed.sizes))
    run.record.status = "diverged"
    if run.group.leads:
        run.record.save(run.folder)
    advice = "lower the learning rate, warm up longer or clip the gradient"
    good = f"the last good checkpoint is {kept[0]}" if kept else "there was no checkpoint yet"
    raise DivergedError(f"the loss is {value} in epoch {run.epoch + 1} at learning rate {rate:.4g}; {good}; {advice}")
