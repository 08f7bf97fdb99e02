"""How a sweep stands, in numbers and words: what the live table and the lines of a log are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calgrad.sweep.cost import estimate
from calgrad.sweep.ledger import speeds
from calgrad.sweep.run import Run
from calgrad.sweep.schedule import Status
from calgrad.sweep.worker import read_progress

STATES = ("done", "running", "failed", "waiting")


def counts(board: Sequence[Status]) -> str:
    """`3 done, 2 running, 0 failed, 4 waiting`."""
    found = Counter(status.state for status in board)
    return ", ".join(f"{found[state]} {state}" for state in STATES)


def hours_left(board: Sequence[Status], rows: Sequence[Mapping[str, Any]], slots: int) -> float:
    """An estimate of the rest: what finished runs of the same cell took, else the cost model, over `slots` at a time."""
    known: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        known.setdefault((row["data"], row["model"], int(row["epochs"])), []).append(float(row["minutes"]) / 60)
    measured = speeds(rows)
    total = 0.0
    for status in board:
        if status.state in ("waiting", "running"):
            recipe = status.run.recipe
            taken = known.get((recipe.data, recipe.model, recipe.epochs))
            if taken:
                total += sum(taken) / len(taken) * (1 - part_done(status.run))
            else:
                total += estimate([status.run], measured).hours
    return total / max(1, slots)


def part_done(run: Run) -> float:
    """The fraction of a run's epochs that is done, by its own word."""
    said = read_progress(run.folder)
    return min(1.0, said["epoch"] / run.recipe.epochs) if said else 0.0


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
