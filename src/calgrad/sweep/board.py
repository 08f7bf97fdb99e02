"""How a sweep stands, in numbers and words: what the live table and the lines of a log are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calgrad.sweep.run import Run
from calgrad.sweep.schedule import Status
from calgrad.sweep.worker import read_progress

Cell = tuple[str, str, int]
STATES = ("done", "running", "failed", "waiting")


def counts(board: Sequence[Status]) -> str:
    """`3 done, 2 running, 0 failed, 4 waiting`."""
    found = Counter(status.state for status in board)
    return ", ".join(f"{found[state]} {state}" for state in STATES)


def hours_left(board: Sequence[Status], rows: Sequence[Mapping[str, Any]], slots: int) -> float | None:
    """An estimate of the rest, `slots` runs at a time; None while some cell of the grid has told nothing yet.

    A cell is data, network and length. What its finished runs took tells best; before the first one is finished, the
    epochs of a running one do. A speed measured on another machine would tell nothing about this one.
    """
    hours: dict[Cell, list[float]] = {}
    for row in rows:
        hours.setdefault((row["data"], row["model"], int(row["epochs"])), []).append(float(row["minutes"]) / 60)
    heard = {status.run.folder: read_progress(status.run.folder) for status in board if status.state == "running"}
    for status in board:
        said = heard.get(status.run.folder)
        if said and _cell(status.run) not in hours:
            hours[_cell(status.run)] = [said["seconds_an_epoch"] * said["epochs"] / 3600]
    total = 0.0
    for status in board:
        if status.state in ("waiting", "running"):
            known = hours.get(_cell(status.run))
            if not known:
                return None
            said = heard.get(status.run.folder)
            total += sum(known) / len(known) * (1 - said["epoch"] / said["epochs"] if said else 1.0)
    return total / max(1, slots)


def _cell(run: Run) -> Cell:
    return run.recipe.data, run.recipe.model, run.recipe.epochs


def describe(status: Status, folder: Path) -> tuple[str, str, str]:
    """A run's name below `folder`, its state, and what there is to say about it."""
    try:
        name = str(status.run.folder.relative_to(folder))
    except ValueError:
        name = str(status.run.folder)
    said = status.message.splitlines()[0] if status.message else ""
    if status.state == "running":
        progress = read_progress(status.run.folder)
        said = f"epoch {progress['epoch']} of {progress['epochs']}" if progress else "starting"
        said += f", attempt {status.attempts}" if status.attempts > 1 else ""
    return name, status.state, said


def duration(hours: float) -> str:
    """`40 s`, `12 min`, `3.4 h`."""
    if hours * 60 < 2:
        return f"{hours * 3600:.0f} s"
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:,.1f} h"
