"""The whole step as one CUDA graph.

A step of ResNet-50 at batch 128 is about a thousand kernels of a few microseconds: launched one by one, the host is
the slow part. Captured once and replayed, they follow each other without a gap. The forward and backward of full
batches go through `torch.compile` first; the last, smaller batch of an epoch gets a graph of its own from the
uncompiled code, which saves a second compilation for one step an epoch. Warming up runs real steps, so all state is
put back afterwards, bit for bit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from calgrad.train.step import TrainStep

WARM_UP_STEPS = 3
"""As torch.cuda.graph's documentation asks: lazy initialisation and algorithm choice must lie behind the capture."""


@dataclass(frozen=True)
class Prepared:
    """How a run's steps are computed, the seconds that took to prepare, and why it is not as asked for, if so."""

    mode: str
    seconds: float
    note: str | None = None


def prepare(step: TrainStep, mode: str, *, device: torch.device, inductor: dict[str, Any] | None = None) -> Prepared:
    """Compile and capture `step` as `mode` says; the feed must be at the start of an epoch.

    Args:
        step: The step.
        mode: auto, none, compile, graph or graph-tuned, as in `Recipe.compile`; `graph-eager`: not compiled.
        device: Where it runs.
        inductor: Options for `torch.compile`, for benchmarks.
    """
    started = time.perf_counter()
    if mode == "auto":
        # Collectives inside a captured step are a matter of luck across NCCL versions: several processes run eagerly.
        mode = "graph" if device.type == "cuda" and step.group.world == 1 else "none"
    if mode == "none":
        return Prepared(mode, 0.0)
    wants_graph = mode.startswith("graph") and device.type == "cuda" and step.group.world == 1
    note = None
    if mode.startswith("graph") and not wants_graph:
        note = "the step ran eagerly: a CUDA graph needs CUDA and a single process"
        return Prepared("none", 0.0, note)
    full = step.feed.sizes[0]
    if mode != "graph-eager":
        tuned = "max-autotune-no-cudagraphs" if mode == "graph-tuned" else None
        step.objectives[full] = torch.compile(step.objective, dynamic=False, mode=tuned, options=inductor)  # type: ignore[call-overload]
    try:
        if wants_graph:
            capture(step)
        else:
            warm_up(step, full)
    except Exception as error:  # compilers and drivers fail in many ways; the eager step still gives the same numbers
        step.replays.clear()
        step.objectives.clear()
        note = f"the step ran eagerly: {mode} failed with {type(error).__name__}: {str(error).strip()[:300]}"
        mode = "none"
    return Prepared(mode, time.perf_counter() - started, note)


def warm_up(step: TrainStep, size: int, steps: int = 1) -> None:
    """Run some steps of `size` samples and undo them."""
    before = {name: tensor.clone() for name, tensor in step.state_tensors().items()}
    with torch.random.fork_rng(devices=[step.lr.device] if step.lr.is_cuda else []):
        try:
            for _ in range(steps):
                step.restore({**before, **_origin(step)})
                step.body(size)
        finally:
            step.optimiser.zero_grad(set_to_none=True)
            step.restore(before)


def capture(step: TrainStep) -> None:
    """Capture a graph for each size of batch an epoch has."""
    sizes = list(dict.fromkeys(step.feed.sizes))
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    pool = None
    for size in sizes:
        side.wait_stream(current)
        with torch.cuda.stream(side):
            warm_up(step, size, WARM_UP_STEPS)
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Gradients are None here and are made inside the capture, in the graphs' own memory. They share that memory:
        # each writes whatever it reads, so they may follow each other in any order.
        with torch.cuda.graph(graph, stream=side, pool=pool):
            step.body(size)
        pool = graph.pool()
        step.replays[size] = graph.replay
    step.optimiser.zero_grad(set_to_none=True)


def _origin(step: TrainStep) -> dict[str, torch.Tensor]:
    """The counters at zero, so that every warm-up step finds a batch."""
    return {
        name: torch.zeros_like(tensor)
        for name, tensor in step.state_tensors().items()
        if name.startswith("feed.") or name == "step.index"
    }
