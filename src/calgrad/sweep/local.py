"""Many runs on this machine: one after the other in this process, or side by side in workers of their own.

Small nets do not fill two cores, so on a CPU each worker gets one thread and the runs go side by side; GPUs are dealt out
by CUDA_VISIBLE_DEVICES. A worker lives through many runs. One that dies (out of memory, killed) takes only its run with it,
and a fresh one takes its place. A finished run is not run again, so the same call after a failure does only what is missing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from calgrad.checks import InputError
from calgrad.sweep.run import Run
from calgrad.sweep.schedule import Engine, Status, raise_failures, schedule
from calgrad.sweep.worker import Outcome, Place, make_run, make_run_apart

PATIENCE = 60.0
"""Seconds that a worker gets to write its checkpoint when the sweep is stopped."""


def run_all(
    runs: Sequence[Run],
    *,
    jobs: int | None = None,
    device: str | None = None,
    data_root: str | None = None,
    retries: int = 0,
    on_done: Callable[[Run], None] | None = None,
) -> None:
    """Make every run that is not finished yet.

    Args:
        runs: what to make.
        jobs: how many at a time; by default one a core on a CPU and one a GPU.
        device: where to train.
        data_root: where the data sets are.
        retries: further attempts at a run whose worker died; each goes on from the last checkpoint.
        on_done: called in this process as each run ends well.
    """

    def ended(status: Status, outcome: Outcome) -> None:
        if outcome.kind == "done" and on_done:
            on_done(status.run)

    engine = local_engine(jobs=jobs, device=device, data_root=data_root, most=len(runs))
    raise_failures(schedule(runs, engine, retries=retries, on_end=ended))


def local_engine(
    *,
    jobs: int | None = None,
    device: str | None = None,
    data_root: str | None = None,
    gpus_per_run: float | None = None,
    threads: int | None = None,
    most: int | None = None,
    apart: bool = False,
) -> Engine:
    """This machine as an engine: this process for one run at a time, else workers; always workers if `apart`."""
    slots = gpu_slots(jobs, device, gpus_per_run)
    slots = slots[: max(1, most)] if most is not None else slots
    processes = int(gpus_per_run) if gpus_per_run and gpus_per_run > 1 else 1
    if len(slots) == 1 and not apart:
        return Here(Place(device, data_root, threads, processes))
    threads = threads or max(1, usable_cores() // len(slots))
    return Workers(slots, Place(device, data_root, threads, processes))


def usable_cores() -> int:
    """The cores this process may use, which a container can make fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_slots(jobs: int | None, device: str | None, gpus_per_run: float | None = None) -> list[str | None]:
    """What each of the runs at a time may see: CUDA_VISIBLE_DEVICES, or None for everything.

    Four GPUs make four slots with one GPU a run, two with two, eight with a half.
    """
    per_run = 1.0 if gpus_per_run is None else gpus_per_run
    on_gpu = (device or "").startswith("cuda") or (device is None and torch.cuda.is_available())
    if not on_gpu or per_run == 0:
        return [None] * (jobs or usable_cores())
    if (device or "").startswith("cuda:"):  # the very one, however many share it
        return [None] * (jobs or 1)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = [name for name in named.split(",") if name] if named else list(map(str, range(torch.cuda.device_count())))
    if per_run < 1:
        slots = [name for _ in range(int(1 / per_run)) for name in visible]
    else:
        if per_run != int(per_run) or per_run > len(visible):
            raise InputError(f"{len(visible)} GPUs cannot be dealt out {per_run:g} a run")
        size = int(per_run)
        slots = [",".join(visible[i : i + size]) for i in range(0, len(visible) - size + 1, size)]
    if jobs and jobs > len(slots):  # asked for: runs share the GPUs
        slots = [slots[i % len(slots)] for i in range(jobs)]
    return list(slots[: jobs or len(slots)])


class Here:
    """Runs in this very process, one after the other."""

    slots = 1

    def __init__(self, place: Place) -> None:
        self.place = place
        self.results: list[tuple[Run, Outcome]] = []

    def start(self, run: Run) -> None:
        """Make the run."""
        self.results.append((run, make_run(run, self.place)))

    def ended(self, seconds: float) -> list[tuple[Run, Outcome]]:
        """What `start` left."""
        ready, self.results = self.results, []
        if not ready:
            time.sleep(seconds)
        return ready

    def close(self) -> None:
        """Nothing is left running."""


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    run: Run | None = None


class Workers:
    """Processes of this machine, one a slot, started as they are needed."""

    def __init__(self, visible: Sequence[str | None], place: Place) -> None:
        self.visible, self.place = visible, place
        self.workers: list[_Worker | None] = [None] * len(visible)

    @property
    def slots(self) -> int:
        """One run a worker."""
        return len(self.visible)

    def start(self, run: Run) -> None:
        """Hand a run to an idle worker."""
        index = next(i for i, worker in enumerate(self.workers) if worker is None or worker.run is None)
        worker = self.workers[index]
        if worker is None or not worker.process.is_alive():
            worker = self.workers[index] = self._spawn(self.visible[index])
        worker.run = run
        worker.pipe.send(run)

    def ended(self, seconds: float) -> list[tuple[Run, Outcome]]:
        """Outcomes that workers sent, and the runs of those that died."""
        busy = [worker for worker in self.workers if worker is not None and worker.run is not None]
        if not busy:
            time.sleep(seconds)
        ready = wait([worker.pipe for worker in busy], timeout=seconds)
        found = []
        for worker in busy:
            if worker.pipe in ready and worker.run is not None:
                found.append((worker.run, self._receive(worker)))
                worker.run = None
        return found

    def close(self) -> None:
        """Ask every worker to stop; one in the middle of a run writes a checkpoint first."""
        alive = [worker for worker in self.workers if worker is not None]
        for worker in alive:
            if worker.run is not None:
                worker.process.terminate()
            worker.pipe.close()
        deadline = time.monotonic() + PATIENCE
        for worker in alive:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self.workers = [None] * len(self.visible)

    def _spawn(self, visible: str | None) -> _Worker:
        # Spawned, not forked: torch's thread pools and CUDA do not survive a fork.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.place))
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        try:
            if visible is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = visible
            process.start()
        finally:
            if visible is not None:
                os.environ.pop("CUDA_VISIBLE_DEVICES")
                os.environ.update({} if before is None else {"CUDA_VISIBLE_DEVICES": before})
        theirs.close()  # or its end would never be seen here
        return _Worker(process, ours)

    def _receive(self, worker: _Worker) -> Outcome:
        try:
            outcome: Outcome = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            code = worker.process.exitcode or 0
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            self.workers[self.workers.index(worker)] = None
            return Outcome("died", f"its process ended {how}")
        return outcome


def _serve(pipe: Connection, place: Place) -> None:
    """A worker: runs in, outcomes out, until the other end is closed."""
    while True:
        try:
            run = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        outcome = make_run_apart(run, place)
        try:
            pipe.send(outcome)
        except OSError:  # the driver is gone; the run folder has it all
            return
