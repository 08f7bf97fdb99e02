"""A network's logits over a part of a data set, in the part's own order, also when several processes share the work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from calgrad.data import Part, batches
from calgrad.predictions import Predictions
from calgrad.train.distributed import Group
from calgrad.train.feed import input_dtype
from calgrad.train.recipe import Recipe
from calgrad.train.step import Net
from calgrad.train.weights import TrainedModel

EVAL_PIXELS, EVAL_ROWS = 1 << 20, 4096
"""The most of either in an evaluation batch: 1,024 CIFAR images, 20 ImageNet ones; never less than in training."""


def each_batch(
    net: Net, part: Part, recipe: Recipe, *, device: torch.device, group: Group
) -> Iterator[tuple[Tensor, ...]]:
    """Logits, features, labels and ids of a part in order, batch by batch, the same in every process."""
    size = max(recipe.batch, min(EVAL_PIXELS // part.spec.image_size**2, EVAL_ROWS))
    stream = batches(
        part,
        size,
        device=device,
        dtype=input_dtype(recipe),
        rank=group.rank,
        world=group.world,
        workers=recipe.workers,
    )
    done = 0
    for batch in stream:
        rows = min(size, len(part) - done)
        done += rows
        logits, features = net(batch.images)
        yield tuple(group.gather(t, rows) for t in (logits, features, batch.labels, batch.ids))


@torch.no_grad()
def part_logits(
    net: Net, part: Part, recipe: Recipe, *, device: torch.device, group: Group
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (N, K), labels and ids of a part, on the device; the network is in evaluation mode for it."""
    was_training = net.training
    net.eval()
    try:
        found = [
            (logits, labels, ids)
            for logits, _, labels, ids in each_batch(net, part, recipe, device=device, group=group)
        ]
    finally:
        net.train(was_training)
    logits, labels, ids = (torch.cat(column) for column in zip(*found))
    return logits, labels, ids


def predict(trained: TrainedModel, part: Part, *, split: str = "", device: str | torch.device = "cpu") -> Predictions:
    """What a trained network says about a part of a data set.

    Args:
        trained: From `load_model`.
        part: Such as `load_data("cifar10").test`.
        split: What to call the part in the file.
        device: Where to compute; the network must be there.
    """
    net = Net(trained.model, trained.recipe)
    fitted = trained.shape.fit(part)
    logits, labels, ids = part_logits(net, fitted, trained.recipe, device=torch.device(device), group=Group())
    return Predictions(
        logits.cpu(), labels.cpu(), ids.cpu().numpy(), split, provenance(trained.recipe, trained.seed, part)
    )


def provenance(recipe: Recipe, seed: int, part: Part) -> dict[str, Any]:
    """What a file of predictions says about where it comes from."""
    meta: dict[str, Any] = {
        "recipe": recipe.name,
        "fingerprint": recipe.fingerprint(),
        "seed": seed,
        "data": part.spec.name,
        "model": recipe.model,
        "loss": recipe.loss,
        "loss_options": dict(recipe.loss_options),
    }
    return {**meta, "class_names": list(part.spec.classes)} if part.spec.classes else meta
