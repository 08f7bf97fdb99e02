"""A run: recipe and seed made flesh, with everything that a checkpoint must hold in one place."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import nn

from calgrad.checks import FileError
from calgrad.data import Splits, TensorPart, load_data
from calgrad.losses import make_loss
from calgrad.predictions import Predictions
from calgrad.train.checkpoint import load_latest, save_checkpoint
from calgrad.train.distributed import Group
from calgrad.train.ema import Ema
from calgrad.train.feed import DeviceFeed, StreamFeed, make_feed
from calgrad.train.optim import make_optimiser
from calgrad.train.predict import part_logits, provenance
from calgrad.train.recipe import Recipe
from calgrad.train.record import Record, same_run
from calgrad.train.step import Net, TrainStep, bare, drop_batch_counters, restore_batch_counters
from calgrad.train.weights import WEIGHTS, InputShape, build_model, save_weights

CHECKPOINT_FORMAT = 1
CHECKPOINTS = "checkpoints"


@dataclass
class Run:
    """The state of a run: where it stands (`epoch` done, `step` within the next), what it computes with, its record."""

    recipe: Recipe
    seed: int
    folder: Path
    device: torch.device
    group: Group
    data: Splits
    loss: nn.Module
    feed: DeviceFeed | StreamFeed
    step: TrainStep
    record: Record
    epoch: int = 0
    position: int = 0
    saved_at: float = field(default_factory=time.monotonic)

    @property
    def net(self) -> Net:
        """The network, without the wrapper for several processes."""
        return bare(self.step.net)

    @property
    def steps_done(self) -> int:
        """Optimiser steps since the beginning."""
        return self.epoch * len(self.feed.sizes) + self.position

    # ------------------------------------------------------------------------------------------------------ checkpoints

    def checkpoint(self) -> Path | None:
        """Write a checkpoint and the record; by the first process alone."""
        self.saved_at = time.monotonic()
        if not self.group.leads:
            return None
        started = time.perf_counter()
        tensors = {name: t.detach().cpu() for name, t in self.step.state_tensors().items()}
        state = {
            "format": CHECKPOINT_FORMAT,
            "epoch": self.epoch,
            "position": self.position,
            "tensors": tensors,
            "rng": torch.get_rng_state(),
            "rng_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            "record": json.dumps(asdict(self.record)),
        }
        path = save_checkpoint(self.folder / CHECKPOINTS, self.steps_done, state)
        self.record.add("checkpoint", time.perf_counter() - started)
        self.record.save(self.folder)
        return path

    def resume(self) -> bool:
        """Go back to the latest whole checkpoint; False if there is none."""
        passed_over: list[str] = []
        state = load_latest(self.folder / CHECKPOINTS, say=passed_over.append)
        for text in passed_over:
            self.record.note(text)
        if state is None:
            return False
        if state.get("format") != CHECKPOINT_FORMAT:
            raise FileError(
                f"{self.folder / CHECKPOINTS} holds checkpoints of format {state.get('format')!r:.40}, and this calgrad "
                f"reads {CHECKPOINT_FORMAT}; start anew with resume=False, --restart"
            )
        kept = Record(**json.loads(state["record"]))
        same_run(kept, self.recipe, self.seed, self.folder)
        kept.notes += [text for text in self.record.notes if text not in kept.notes]
        self.epoch, self.position, self.record = state["epoch"], state["position"], kept
        self.step.restore(state["tensors"])
        torch.set_rng_state(state["rng"])
        if state["rng_cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["rng_cuda"], self.device)
        return True

    def begin_epoch(self) -> None:
        """Bring feed, schedule and random numbers to where the run stands."""
        if self.position == 0:
            # Dropout and feature noise draw from the global generator: a function of (seed, epoch) like all else.
            torch.manual_seed(self.seed * 1_000_003 + self.epoch)
        self.feed.start(self.epoch, self.position)
        self.step.start(self.epoch, self.position)

    # ---------------------------------------------------------------------------------------------------------- results

    def evaluated_weights(self) -> AbstractContextManager[None]:
        """A context in which the network holds the weights that are judged and saved: the average, if there is one."""
        # Batch statistics of processes on CPUs differ from one another: the first one's are taken.
        self.group.same_everywhere(list(self.net.buffers()))
        return self.step.ema.swapped_in() if self.step.ema is not None else nullcontext()

    def logits(self, split: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits, labels and ids of a part, on the device."""
        return part_logits(self.net, getattr(self.data, split), self.recipe, device=self.device, group=self.group)

    def predictions(self, split: str, logits: torch.Tensor, labels: torch.Tensor, ids: torch.Tensor) -> Predictions:
        """The same as a `Predictions`."""
        meta = provenance(self.recipe, self.seed, getattr(self.data, split))
        return Predictions(logits.cpu(), labels.cpu(), ids.cpu().numpy(), split, meta)

    def save_weights(self) -> None:
        """Write the network's weights; call within `evaluated_weights`."""
        model = self.net.model
        restore_batch_counters(model, self.steps_done, self.device)
        save_weights(self.folder / WEIGHTS, model, self.recipe, self.seed, InputShape.of(self.data.spec))


def load_splits(recipe: Recipe, data_root: str | Path | None = None) -> Splits:
    """The recipe's data, split as the recipe says: the same for every seed."""
    return load_data(
        recipe.data,
        data_root,
        split=recipe.split,
        val_size=recipe.val_size,
        seed=recipe.split_seed,
        image_size=recipe.image_size,
        workers=recipe.workers,
    )


def build_run(
    recipe: Recipe, seed: int, folder: Path, *, device: torch.device, group: Group, data_root: str | Path | None = None
) -> Run:
    """Load the data, initialise the network from the seed, and put everything on the device."""
    started = time.perf_counter()
    data = load_splits(recipe, data_root)
    if isinstance(data.train, TensorPart):
        data = data.to(device)
    torch.manual_seed(seed)
    model = build_model(recipe, InputShape.of(data.spec))
    if group.world == 1:  # SyncBatchNorm insists on its counters
        drop_batch_counters(model)
    # Tensor cores read channels-last; a CPU would gain nothing on these nets.
    model = model.to(device, memory_format=torch.channels_last) if device.type == "cuda" else model.to(device)  # type: ignore[call-overload]
    net = group.wrap(Net(model, recipe).train(), device)
    loss = make_loss(recipe.loss, reduction=recipe.reduction, **recipe.loss_options).to(device)
    lr = torch.tensor(recipe.lr, dtype=torch.float32, device=device)
    feed = make_feed(data.train, recipe, seed, device=device, group=group)
    step = TrainStep(
        net,
        loss,
        make_optimiser(recipe, net.parameters(), lr),
        feed,
        lr=lr,
        recipe=recipe,
        ema=None if recipe.ema is None else Ema(bare(net), decay=recipe.ema),
        group=group,
    )
    record = Record.start(recipe, seed, device, processes=group.world)
    record.add("setup", time.perf_counter() - started)
    return Run(recipe, seed, folder, device, group, data, loss, feed, step, record)
