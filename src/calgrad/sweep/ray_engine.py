"""A Ray cluster as an engine (extra `calgrad[ray]`).

A run is a Ray task with its share of CPUs and GPUs. Ray's own retries are off: a task whose worker or node goes away comes
back as "died", and the scheduler gives it another attempt from its last checkpoint. Run folders must lie where every node
sees them (a shared file system), for there the checkpoints are. If the driver dies, Ray ends its tasks; a new driver finds
the finished runs finished, and one that an orphan still holds busy, until the orphan is gone.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from calgrad.checks import InputError
from calgrad.sweep.run import Run
from calgrad.sweep.schedule import SweepError
from calgrad.sweep.worker import Outcome, Place, make_run_apart

PATIENCE = 60.0
"""Seconds that tasks get to write their checkpoints when the sweep is stopped."""


class RayEngine:
    """Runs as tasks of a Ray cluster."""

    def __init__(
        self,
        *,
        address: str = "auto",
        device: str | None = None,
        data_root: str | None = None,
        gpus_per_run: float | None = None,
        cpus_per_run: int = 1,
        jobs: int | None = None,
    ) -> None:
        """Connect.

        Args:
            address: Of the cluster; "auto" finds the one of this machine, "local" starts one in this process's name.
            device: As for `train`.
            data_root: Where the data sets are, on every node.
            gpus_per_run: A fraction lets runs share a GPU; above one, a run is shared by that many processes. By default
                one where the cluster has GPUs.
            cpus_per_run: Cores, and threads of torch.
            jobs: Tasks handed to Ray at once; by default as many as the nodes that are up can hold. An autoscaling
                cluster grows towards a larger number.
        """
        try:
            import ray
        except ImportError as error:
            raise InputError("the engine 'ray' needs the extra: pip install 'calgrad[ray]'") from error
        self.ray: Any = ray
        self.ours = not ray.is_initialized()
        if self.ours:
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise SweepError(
                    f"no Ray cluster at {address!r} ({str(error).splitlines()[0]}); start one with `ray start --head`, "
                    "or use --address local"
                ) from error
        if gpus_per_run is None:
            gpus_per_run = 1.0 if device != "cpu" and ray.cluster_resources().get("GPU") else 0.0
        self.needs = {"CPU": float(cpus_per_run), "GPU": float(gpus_per_run)}
        self.jobs = jobs
        place = Place(device, data_root, cpus_per_run, int(gpus_per_run) if gpus_per_run > 1 else 1)
        if jobs is None and self.slots == 0:
            raise SweepError(f"no node of the Ray cluster has {cpus_per_run} CPUs and {gpus_per_run:g} GPUs for a run")
        self.place = ray.put(place)
        self.task = ray.remote(num_cpus=cpus_per_run, num_gpus=gpus_per_run, max_retries=0)(make_run_apart)
        self.runs: dict[Any, Run] = {}

    @property
    def slots(self) -> int:
        """What the nodes that are up now can hold."""
        if self.jobs is not None:
            return self.jobs
        wanted = {name: amount for name, amount in self.needs.items() if amount}
        alive = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(int(min(node.get(name, 0.0) // amount for name, amount in wanted.items())) for node in alive)

    def start(self, run: Run) -> None:
        """Hand a run to Ray."""
        # The workers' current folder is not ours.
        absolute = Run(run.recipe, run.seed, run.folder.resolve())
        self.runs[self.task.remote(absolute, self.place)] = run

    def ended(self, seconds: float) -> list[tuple[Run, Outcome]]:
        """Tasks that ended, and those whose worker or node is gone."""
        if not self.runs:
            time.sleep(seconds)
            return []
        waiting = list(self.runs)
        self.ray.wait(waiting, num_returns=1, timeout=seconds)
        ready, _ = self.ray.wait(waiting, num_returns=len(waiting), timeout=0)
        return [(self.runs.pop(reference), self._outcome(reference)) for reference in ready]

    def close(self) -> None:
        """Interrupt what still runs (it writes a checkpoint first) and leave the cluster."""
        try:
            waiting = list(self.runs)
            for reference in waiting:
                self.ray.cancel(reference)
            if waiting:
                self.ray.wait(waiting, num_returns=len(waiting), timeout=PATIENCE)
        finally:
            self.runs = {}
            if self.ours:
                self.ray.shutdown()

    def _outcome(self, reference: Any) -> Outcome:
        try:
            outcome: Outcome = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            return Outcome("died", f"{type(error).__name__}: {' '.join(str(error).split())[:500]}")
        return outcome
