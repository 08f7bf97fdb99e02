"""Many runs on this machine: one after the other, or side by side in processes of their own.

Small nets do not fill two cores, so on a CPU each process gets one thread and the runs go side by side. A run that fails
does not take the others with it: all that can finish does, and the error names those that did not. A finished run is not
run again, so the same call after a failure does only what is missing.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import torch

from calgrad.checks import CalgradError
from calgrad.train import Recipe, train


@dataclass(frozen=True)
class Run:
    """One run to make: what, with which seed, and where."""

    recipe: Recipe
    seed: int
    folder: Path


class SweepError(CalgradError):
    """Some runs failed; the others are finished and kept."""


def run_all(
    runs: Sequence[Run],
    *,
    jobs: int | None = None,
    device: str | None = None,
    data_root: str | None = None,
    on_done: Callable[[Run], None] | None = None,
) -> None:
    """Make every run that is not finished yet.

    Args:
        runs: what to make.
        jobs: how many at a time; by default one a core on a CPU and one on a GPU.
        device: where to train.
        data_root: where the data sets are.
        on_done: called in this process as each run ends well.
    """
    on_gpu = (device or "").startswith("cuda") or (device is None and torch.cuda.is_available())
    jobs = jobs or (1 if on_gpu else usable_cores())
    jobs = max(1, min(jobs, len(runs)))
    failures: list[tuple[Run, BaseException]] = []
    if jobs == 1:
        for run in runs:
            try:
                _make(run, device, data_root)
            except CalgradError as error:
                failures.append((run, error))
            else:
                if on_done:
                    on_done(run)
    else:
        failures = _side_by_side(runs, jobs, device, data_root, on_done)
    if failures:
        lines = [f"  {run.folder} (seed {run.seed}): {error}" for run, error in failures]
        raise SweepError(f"{len(failures)} of {len(runs)} runs failed; the others are kept:\n" + "\n".join(lines))


def usable_cores() -> int:
    """The cores this process may use, which a container can make fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _side_by_side(
    runs: Sequence[Run], jobs: int, device: str | None, data_root: str | None, on_done: Callable[[Run], None] | None
) -> list[tuple[Run, BaseException]]:
    failures: list[tuple[Run, BaseException]] = []
    threads = max(1, usable_cores() // jobs)
    # Spawned, not forked: torch's thread pools and CUDA do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
        waiting = {pool.submit(_make, run, device, data_root): run for run in runs}
        try:
            for future in as_completed(waiting):
                error = future.exception()
                if error is not None:
                    failures.append((waiting[future], error))
                elif on_done:
                    on_done(waiting[future])
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failures


def _make(run: Run, device: str | None, data_root: str | None) -> None:
    train(run.recipe, run.seed, folder=run.folder, device=device, data_root=data_root, quiet=True)
