"""The optimiser and the learning rate of every step.

The learning rate is a pure function of the step, so that a resumed run needs no scheduler state. A whole epoch of it
goes to the device as a table, and the step reads its own entry: nothing on the host takes part, and a CUDA graph
captured once serves all of the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from calgrad.train.recipe import Recipe

ONE_CYCLE_START = 0.04
"""Where one-cycle begins, as a fraction of the peak (Smith and Topin's 1/25)."""


def learning_rate(recipe: Recipe, step: int, steps_per_epoch: int) -> float:
    """The learning rate of step `step` (counted from 0 over the whole run).

    >>> recipe = Recipe(data="digits", model="mlp", lr=0.1, epochs=3, schedule="steps", milestones=(1, 2))
    >>> [round(learning_rate(recipe, s, 10), 6) for s in (0, 9, 10, 29)]
    [0.1, 0.1, 0.01, 0.001]
    """
    warmup = recipe.warmup * steps_per_epoch
    total = recipe.epochs * steps_per_epoch
    if step < warmup:
        floor = ONE_CYCLE_START if recipe.schedule == "one-cycle" else 0.0
        # The first step is one part of the way up, not zero: a step of size zero would be a step wasted.
        return recipe.lr * (floor + (1 - floor) * (step + 1) / (math.floor(warmup) + 1))
    done = (step - warmup) / max(total - warmup, 1)
    return recipe.lr * _DECAY[recipe.schedule](recipe, done, step // steps_per_epoch)


_DECAY: dict[str, Callable[[Recipe, float, int], float]] = {
    "constant": lambda recipe, done, epoch: 1.0,
    "steps": lambda recipe, done, epoch: recipe.lr_drop ** sum(epoch >= m for m in recipe.milestones),
    "cosine": lambda recipe, done, epoch: 0.5 * (1 + math.cos(math.pi * done)),
    "linear": lambda recipe, done, epoch: 1 - done,
    "one-cycle": lambda recipe, done, epoch: 1 - done,
}


def epoch_table(recipe: Recipe, epoch: int, steps_per_epoch: int) -> Tensor:
    """The learning rates of one epoch, (steps_per_epoch,) float32 on the CPU."""
    first = epoch * steps_per_epoch
    return torch.tensor([learning_rate(recipe, first + s, steps_per_epoch) for s in range(steps_per_epoch)])


def make_optimiser(recipe: Recipe, parameters: Iterable[nn.Parameter], lr: Tensor) -> torch.optim.Optimizer:
    """The recipe's optimiser: fused, with the learning rate in the tensor `lr`, and with its state already in place."""
    trained = [p for p in parameters if p.requires_grad]
    options: dict[str, Any] = {"lr": lr, "weight_decay": recipe.weight_decay, "fused": True}
    optimiser: torch.optim.Optimizer
    if recipe.optimiser in ("sgd", "nesterov"):
        nesterov = recipe.optimiser == "nesterov"
        optimiser = torch.optim.SGD(trained, momentum=recipe.momentum, nesterov=nesterov, **options)
    else:
        kind = torch.optim.Adam if recipe.optimiser == "adam" else torch.optim.AdamW
        on_cuda = trained[0].device.type == "cuda"
        optimiser = kind(trained, betas=(recipe.momentum, 0.999), capturable=on_cuda, **options)
    _prime(optimiser, lr)
    return optimiser


def state_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor of the optimiser's state, named by parameter number and key, in a fixed order."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    return {
        f"{number}.{key}": value
        for number, parameter in enumerate(parameters)
        for key, value in sorted(optimiser.state[parameter].items())
        if isinstance(value, Tensor)
    }


def _prime(optimiser: torch.optim.Optimizer, lr: Tensor) -> None:
    """Let the optimiser allocate its state now, at zero, by a step of size zero.

    Momentum that starts at zero is momentum that starts at the first gradient (there is no dampening), so this changes
    no number; but the tensors exist before a CUDA graph is captured and can be restored in place.
    """
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    rate = lr.clone()
    lr.zero_()
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    for tensor in state_tensors(optimiser).values():
        tensor.zero_()
    lr.copy_(rate)
