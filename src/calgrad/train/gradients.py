"""How strongly each training sample pulls at the last layer, beside how wrong the network is about it.

The paper's figures plot the norm of the last layer's gradient by sample against the sample's Brier score. No backward
pass by sample is needed: with g = dL/dz of a sample and h its features, the gradient of the head's weight is the
outer product g h^T and that of its bias is g, so the norm of both together is |g| sqrt(|h|^2 + 1).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from calgrad.data import Part
from calgrad.files import whole_file
from calgrad.losses import make_loss
from calgrad.train.distributed import Group
from calgrad.train.predict import each_batch
from calgrad.train.recipe import Recipe
from calgrad.train.step import Net, batch_loss


def last_layer_gradients(
    net: Net, loss: nn.Module, part: Part, recipe: Recipe, *, device: torch.device, group: Group
) -> dict[str, np.ndarray]:
    """Per sample of `part`: `gradient_norm`, `brier`, `p_true`, `labels` and `ids`; in evaluation mode, not augmented.

    For a loss that couples samples, the gradient is that of the summed loss of an evaluation batch.
    """
    # Summed, so that a sample's gradient does not depend on how many others share its batch.
    summed = make_loss(recipe.loss, reduction="sum", **recipe.loss_options).to(device)
    summed.load_state_dict(loss.state_dict())
    was_training = net.training
    net.eval()
    columns: list[tuple[Tensor, ...]] = []
    try:
        with torch.no_grad():
            for logits, features, labels, ids in each_batch(net, part, recipe, device=device, group=group):
                norm = _norms(summed, net.model.head, logits, features, labels)
                probs = logits.softmax(dim=1)
                p_true = probs.gather(1, labels[:, None]).squeeze(1)
                # |p - e_y|^2, expanded so that no one-hot matrix is made.
                brier = probs.square().sum(dim=1) - 2 * p_true + 1
                columns.append((norm, brier, p_true, labels, ids))
    finally:
        net.train(was_training)
    names = ("gradient_norm", "brier", "p_true", "labels", "ids")
    return {name: torch.cat(column).cpu().numpy() for name, column in zip(names, zip(*columns))}


def _norms(loss: nn.Module, head: nn.Module, logits: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(batch_loss(loss, head, leaf, features, labels), leaf)
    has_bias = getattr(head, "bias", None) is not None
    return gradient.norm(dim=1) * (features.square().sum(dim=1) + float(has_bias)).sqrt()


def save_gradients(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Write the columns as one `.npz`, whole or not at all."""
    with whole_file(path) as beside, open(beside, "wb") as file:
        np.savez(file, **columns)  # type: ignore[arg-type]
