"""One run, made wherever the engine puts it.

`train` holds a lock on the run's folder, so two sweeps (or a new driver and an orphan of the old one) never train in the
same place: the second hears "busy" and comes back later. After each epoch a few bytes in `progress.json` say how far
it is, which is what the live table reads: run folders lie where every machine sees them, so no other channel is needed.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calgrad.checks import CalgradError
from calgrad.files import write_text
from calgrad.sweep.run import Run
from calgrad.train import Interrupted, train
from calgrad.train.folders import is_finished
from calgrad.train.lock import LockedError, run_lock

PROGRESS = "progress.json"


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a run ended.

    Attributes:
        kind: "done"; "failed" (it would fail again: a bad option, a diverged loss); "died" (worth another attempt, which
            goes on from the last checkpoint); or "busy" (somebody else is making it).
        message: What went wrong.
        made: Whether this attempt trained anything, or found the run finished.
    """

    kind: str
    message: str = ""
    made: bool = False


@dataclass(frozen=True)
class Place:
    """What a run is made with: all of it the engine's business, none of it the recipe's.

    Attributes:
        device: As for `train`.
        data_root: Where the data sets are.
        threads: Of torch on the CPU; None leaves them as they are.
        processes: Processes that share the run, each with a GPU of its own.
    """

    device: str | None = None
    data_root: str | None = None
    threads: int | None = None
    processes: int = 1


def make_run(run: Run, place: Place) -> Outcome:
    """Make a run, or find it finished; never raises but for an interrupt."""
    try:
        if is_finished(run.folder, run.recipe, run.seed):
            return Outcome("done")
        _train(run, place)
        return Outcome("done", made=True)
    except LockedError as error:
        return Outcome("busy", str(error))
    except CalgradError as error:
        return Outcome("failed", str(error))
    except Exception as error:
        return Outcome("died", f"{type(error).__name__}: {error}\n{traceback.format_exc()}")


def make_run_apart(run: Run, place: Place) -> Outcome:
    """`make_run` in a worker's process: a signal to it is one more way to die."""
    try:
        return make_run(run, place)
    except Interrupted as stopped:
        return Outcome("died", str(stopped))


def read_progress(folder: Path) -> dict[str, Any] | None:
    """What a run last said: epoch (done), epochs, seconds_an_epoch, time, host, pid; None before its first word."""
    try:
        found = json.loads((folder / PROGRESS).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _train(run: Run, place: Place) -> None:
    started, first = time.time(), None

    def say(entry: Mapping[str, Any]) -> None:
        nonlocal first
        first = entry["epoch"] - 1 if first is None else first
        said = {"epoch": entry["epoch"], "epochs": run.recipe.epochs, "time": time.time()}
        said |= {"seconds_an_epoch": (said["time"] - started) / (entry["epoch"] - first)}
        said |= {"host": platform.node(), "pid": os.getpid()}
        write_text(run.folder / PROGRESS, json.dumps(said))

    run.folder.mkdir(parents=True, exist_ok=True)
    if place.processes > 1:
        _train_together(run, place)
        return
    if place.threads:
        import torch

        torch.set_num_threads(place.threads)
    train(
        run.recipe,
        run.seed,
        folder=run.folder,
        device=place.device,
        data_root=place.data_root,
        on_epoch=say,
        quiet=True,
    )


def _train_together(run: Run, place: Place) -> None:
    """Several processes for one run: torchrun starts them and ends them together."""
    with run_lock(run.folder):  # is it free? The first of them takes it
        pass
    with tempfile.TemporaryDirectory() as scratch:
        recipe = Path(scratch) / "recipe.yaml"
        recipe.write_text(run.recipe.to_yaml())
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={place.processes}"]
        command += ["-m", "calgrad", "train", str(recipe), "--seed", str(run.seed), "--out", str(run.folder), "--quiet"]
        command += ["--device", place.device] if place.device else []
        command += ["--data", place.data_root] if place.data_root else []
        environment = {**os.environ, "OMP_NUM_THREADS": str(place.threads or 1)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if not is_finished(run.folder, run.recipe, run.seed):
        raise RuntimeError(f"torchrun ended with {done.returncode}: {done.stderr[-2000:]}")
