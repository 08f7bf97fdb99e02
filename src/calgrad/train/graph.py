"""The whole step as one CUDA graph.

A step of ResNet-50 at batch 128 is about a thousand kernels of a few microseconds: launched one by one, the host is the
slow part. Captured once and replayed, they follow each other without a gap. The forward and backward of full batches go
through `torch.compile` first, the network apart from the loss, so that another loss or seed finds the network compiled. The
last, smaller batch of an epoch gets a graph of its own from the uncompiled code: a second compilation for one step an epoch
would not pay. Warming up runs real steps, so all state is put back afterwards, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from calgrad.train.step import TrainStep

WARM_UP_STEPS = 3
"""As torch.cuda.graph's documentation asks: lazy initialisation and algorithm choice must lie behind the capture."""

TUNED: dict[str, Any] = {"max_autotune": True, "coordinate_descent_tuning": True}
"""What `graph-tuned` adds: minutes of choosing among kernels, for long runs."""

MANY_RUNS = 64
"""Recompilations that dynamo may make of one function before it gives up; its 8 is too few for a sweep in one process."""


@dataclass(frozen=True)
class Prepared:
    """How a run's steps are computed, the seconds that took to prepare, and why it is not as asked for, if so."""

    mode: str
    seconds: float = 0.0
    note: str | None = None


def prepare(
    step: TrainStep,
    mode: str,
    *,
    device: torch.device,
    backend: str | Callable[..., Any] = "inductor",
    inductor: dict[str, Any] | None = None,
) -> Prepared:
    """Compile and capture `step` as `mode` says; the feed must be at the start of an epoch.

    Args:
        step: The step.
        mode: auto, none, compile, graph or graph-tuned, as in `Recipe.compile`; `graph-eager` captures uncompiled code.
        device: Where it runs.
        backend: Of `torch.compile`.
        inductor: Options of the compiler, for benchmarks.
    """
    started = time.perf_counter()
    can_capture = device.type == "cuda" and step.group.world == 1
    if mode == "auto":
        # Collectives inside a captured step are a matter of luck across NCCL versions: several processes run eagerly.
        mode = "graph" if can_capture else "none"
    if mode == "none":
        return Prepared(mode)
    if mode.startswith("graph") and not can_capture:
        return Prepared("none", note="the step ran eagerly: a CUDA graph needs CUDA and a single process")
    full = step.feed.sizes[0]
    try:
        if mode != "graph-eager":
            options = {**(TUNED if mode == "graph-tuned" else {}), **(inductor or {})}
            compile_step(step, full, backend=backend, options=options)
        if mode.startswith("graph"):
            capture(step)
        else:
            warm_up(step, full)
    except Exception as error:  # compilers and drivers fail in many ways; the eager step still gives the same numbers
        step.replays.clear()
        step.compiled.clear()
        text = " ".join(str(error).split())[:300]
        note = f"the step ran eagerly: {mode} failed with {type(error).__name__}: {text}"
        return Prepared("none", time.perf_counter() - started, note)
    return Prepared(mode, time.perf_counter() - started)


def compile_step(
    step: TrainStep,
    size: int,
    *,
    backend: str | Callable[..., Any] = "inductor",
    options: dict[str, Any] | None = None,
) -> None:
    """Put compiled versions of the network and of the loss into `step`, for batches of `size` samples."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MANY_RUNS)
    settings: dict[str, Any] = {"dynamic": False, "backend": backend, "options": options or None}
    step.compiled[size] = (torch.compile(step.forward, **settings), torch.compile(step.criterion, **settings))


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


def capture(step: TrainStep, sizes: list[int] | None = None, pool: Any = None) -> Any:
    """Capture a graph for each size of batch an epoch has; returns the memory pool, which further captures may share."""
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    for size in sizes or list(dict.fromkeys(step.feed.sizes)):
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
    return pool


def _origin(step: TrainStep) -> dict[str, torch.Tensor]:
    """The counters at zero, so that every warm-up step finds a batch."""
    return {
        name: torch.zeros_like(tensor)
        for name, tensor in step.state_tensors().items()
        if name.startswith("feed.") or name == "step.index"
    }
