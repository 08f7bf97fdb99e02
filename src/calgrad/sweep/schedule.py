"""Which run next, what became of it, and whether to try again: the same for every engine.

An engine makes runs; it has `slots` (how many at once), `start(run)` and `ended(seconds)`, which waits that long at most
and returns the runs that ended with their `Outcome`. This loop does the rest: keeps the engine full, gives a run whose worker
died another attempt (`train` goes on from its last checkpoint), comes back later to one that somebody else is making,
and lets no failure take the others with it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from calgrad.checks import CalgradError, InputError, at_least
from calgrad.sweep.run import Run
from calgrad.sweep.worker import Outcome
from calgrad.train.folders import is_finished

TICK = 0.5
"""Seconds after which the watcher is called again, even if nothing ended."""
COME_BACK = 1.0
"""Seconds until a run that was busy is looked at again."""


class SweepError(CalgradError):
    """Some runs failed; the others are finished and kept."""


class Engine(Protocol):
    """Something that makes runs."""

    @property
    def slots(self) -> int:
        """How many runs it takes at once; may change as machines come and go."""

    def start(self, run: Run) -> None:
        """Begin with a run; returns at once, unless the run is made in this very process."""

    def ended(self, seconds: float) -> list[tuple[Run, Outcome]]:
        """Runs that ended since the last call; waits that long for one."""

    def close(self) -> None:
        """Stop what is still running."""


@dataclass
class Status:
    """Where a run stands: `state` is waiting, running, done or failed."""

    run: Run
    state: str = "waiting"
    attempts: int = 0
    message: str = ""
    not_before: float = 0.0


Watch = Callable[[Sequence[Status]], None]
OnEnd = Callable[[Status, Outcome], None]


def schedule(
    runs: Sequence[Run],
    engine: Engine,
    *,
    retries: int = 2,
    watch: Watch | None = None,
    on_end: OnEnd | None = None,
) -> list[Status]:
    """Make every run and return where each one ended; closes the engine.

    Args:
        runs: What to make; a finished one costs a look at its folder.
        engine: What makes them.
        retries: Further attempts at a run whose worker died.
        watch: Called with all statuses now and then: what a live table shows.
        on_end: Called as an attempt ends, whatever came of it.
    """
    at_least("retries", retries, 0)
    twice = [str(folder) for folder, times in Counter(run.folder for run in runs).items() if times > 1]
    if twice:
        raise InputError(f"two runs would share a folder: {', '.join(twice)}")
    statuses = {run.folder: Status(run) for run in runs}
    board = list(statuses.values())
    try:
        for status in board:
            if _found(status.run):
                status.state = "done"
                if on_end:
                    on_end(status, Outcome("done"))
        while any(status.state in ("waiting", "running") for status in board):
            _fill(board, engine)
            for run, outcome in engine.ended(TICK):
                status = statuses[run.folder]
                _settle(status, outcome, retries)
                if on_end:
                    on_end(status, outcome)
            if watch:
                watch(board)
    finally:
        engine.close()
    return board


def raise_failures(board: Sequence[Status]) -> None:
    """A `SweepError` that names every run that failed; nothing if none did."""
    failed = [status for status in board if status.state == "failed"]
    if failed:
        lines = [f"  {s.run.folder} (seed {s.run.seed}): {s.message.splitlines()[0]}" for s in failed]
        raise SweepError(f"{len(failed)} of {len(board)} runs failed; the others are kept:\n" + "\n".join(lines))


def _found(run: Run) -> bool:
    """Whether a run is finished already; what is wrong with its folder is for the attempt to say."""
    try:
        return is_finished(run.folder, run.recipe, run.seed)
    except CalgradError:
        return False


def _fill(board: Sequence[Status], engine: Engine) -> None:
    free = engine.slots - sum(status.state == "running" for status in board)
    for status in board:
        if free <= 0:
            break
        if status.state == "waiting" and status.not_before <= time.monotonic():
            status.state = "running"
            status.attempts += 1
            engine.start(status.run)
            free -= 1


def _settle(status: Status, outcome: Outcome, retries: int) -> None:
    status.message = outcome.message
    if outcome.kind == "busy":
        status.state, status.attempts = "waiting", status.attempts - 1
        status.not_before = time.monotonic() + COME_BACK
    elif outcome.kind == "died" and status.attempts <= retries:
        status.state = "waiting"
    else:
        status.state = "done" if outcome.kind == "done" else "failed"
