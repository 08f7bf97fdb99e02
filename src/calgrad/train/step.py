"""One training step, from sample numbers to new weights, as one function on tensors that never move.

Augmentation, forward, loss, backward, clipping, optimiser and moving average read and write the same storage every
time and ask the host for nothing: the batch is found by a counter on the device in a permutation on the device, the
learning rate in a table on the device, and the loss is added up on the device. So the very same function runs eagerly
on a CPU and, captured once (`calgrad.train.graph`), as a single CUDA graph launch; and there is no device sync within
an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calgrad.losses import ConsistencyCE, feature_consistency
from calgrad.models import Classifier
from calgrad.train.distributed import Group
from calgrad.train.ema import Ema
from calgrad.train.optim import epoch_table, state_tensors
from calgrad.train.recipe import Recipe

Forward = Callable[[int], tuple[Tensor, ...]]
Criterion = Callable[..., Tensor]


class Feed(Protocol):
    """Where a step's samples come from."""

    sizes: list[int]

    def load(self, size: int) -> None:
        """On the host, before the step: bring the next batch to the device, if it is not there already."""

    def take(self, size: int) -> tuple[Tensor, Tensor]:
        """On the device: this process's share of the next batch of `size` samples, augmented, normalised; labels."""

    def advance(self, size: int) -> None:
        """On the device: go on to the next batch."""

    def state_tensors(self) -> dict[str, Tensor]:
        """What must be kept to go on from here."""


class Net(nn.Module):
    """A model in the recipe's precision: features under autocast; head, and so logits and loss, in float32."""

    def __init__(self, model: Classifier, recipe: Recipe) -> None:
        super().__init__()
        self.model = model
        self.bf16 = recipe.precision == "bf16"
        self.resize = recipe.resize

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and features of a batch."""
        if self.resize is not None:
            x = F.interpolate(x, size=(self.resize, self.resize), mode="bilinear", antialias=False)
        if x.is_cuda and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        # The cache of cast weights must be off: a captured graph would go on using the weights of the capture.
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            features = self.model.features(x)
        features = features.float()
        return self.model.head(features), features


class TrainStep:
    """Everything one step touches, and the step itself: `step(size)`.

    Args:
        net: The network; wrapped for several processes if `group` has several.
        loss: From `make_loss`, with the recipe's reduction.
        optimiser: From `make_optimiser`, with `lr` as its learning rate.
        feed: Where batches come from.
        lr: The tensor the optimiser reads.
        recipe: For the schedule, clipping and the scale of the summed loss.
        ema: The moving average to update, if any.
        group: The processes that share the batch.
    """

    def __init__(
        self,
        net: nn.Module,
        loss: nn.Module,
        optimiser: torch.optim.Optimizer,
        feed: Feed,
        *,
        lr: Tensor,
        recipe: Recipe,
        ema: Ema | None = None,
        group: Group | None = None,
    ) -> None:
        self.net, self.loss, self.optimiser, self.feed = net, loss, optimiser, feed
        self.lr, self.recipe, self.ema, self.group = lr, recipe, ema, group or Group()
        self.parameters = [p for p in net.parameters() if p.requires_grad]
        self.rates = torch.zeros(len(feed.sizes), device=lr.device)
        self.index = torch.zeros((), dtype=torch.int64, device=lr.device)
        self.total = torch.zeros((), dtype=torch.float64, device=lr.device)
        self.compiled: dict[int, tuple[Forward, Criterion]] = {}
        """Compiled `forward` and `criterion` by batch size, where there are any."""
        self.replays: dict[int, Callable[[], None]] = {}
        """A captured step by batch size, where there is one."""

    def start(self, epoch: int, step: int = 0) -> None:
        """Get ready for an epoch (from 0), at a step within it: its learning rates go to the device."""
        self.rates.copy_(epoch_table(self.recipe, epoch, len(self.feed.sizes)))
        self.index.fill_(step)
        if step == 0:
            self.total.zero_()

    def __call__(self, size: int) -> None:
        """Make the step for the next batch, of `size` samples over all processes."""
        self.feed.load(size)
        replay = self.replays.get(size)
        if replay is None:
            self.body(size)
        else:
            replay()

    def body(self, size: int) -> None:
        """The step. Nothing here waits for the device, and every tensor that outlives it stays where it is."""
        self.lr.copy_(self.rates.index_select(0, self.index.view(1)).squeeze(0))
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.objective(size)
        # The processes' gradients are averaged on the way, but they must add up.
        (loss * self.group.world).backward()
        if self.recipe.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip, foreach=True)
        self.optimiser.step()
        if self.ema is not None:
            self.ema.update()
        self.total.add_(loss.detach(), alpha=size if self.recipe.reduction == "mean" else 1)
        self.feed.advance(size)
        self.index.add_(1)

    def objective(self, size: int) -> Tensor:
        """The loss of the next batch."""
        forward, criterion = self.compiled.get(size, (self.forward, self.criterion))
        outputs = forward(size)
        if self.group.world > 1:
            start, stop = self.group.bounds(size)
            outputs = tuple(self.group.gather(rows[: stop - start], size) for rows in outputs)
        return criterion(*outputs)

    def forward(self, size: int) -> tuple[Tensor, ...]:
        """Logits, features and labels of the next batch. It knows no loss, so one compilation serves all of them."""
        x, labels = self.feed.take(size)
        logits, features = self.net(x)
        return logits, features, labels

    def criterion(self, logits: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch's outputs."""
        return batch_loss(self.loss, bare(self.net).model.head, logits, features, labels)

    def state_tensors(self) -> dict[str, Tensor]:
        """Every tensor a step changes, by name: what a checkpoint holds and what a capture puts back."""
        groups: Mapping[str, Mapping[str, Tensor]] = {
            "model": bare(self.net).model.state_dict(),
            "loss": self.loss.state_dict(),
            "optimiser": state_tensors(self.optimiser),
            "ema": {} if self.ema is None else self.ema.state_tensors(),
            "feed": self.feed.state_tensors(),
            "step": {"index": self.index, "total": self.total},
        }
        return {f"{group}.{name}": tensor for group, named in groups.items() for name, tensor in named.items()}

    @torch.no_grad()
    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Put saved values back into the same storage."""
        for name, tensor in self.state_tensors().items():
            tensor.copy_(saved[name])


def batch_loss(loss: nn.Module, head: nn.Module, logits: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """The loss of a batch, with what losses that look at feature noise need beside logits and labels."""
    if isinstance(loss, ConsistencyCE):
        consistency = feature_consistency(head, features.detach())
        return loss(logits, labels, consistency)  # type: ignore[no-any-return]
    return loss(logits, labels)  # type: ignore[no-any-return]


def bare(net: nn.Module) -> Net:
    """The network inside the wrapper for several processes."""
    inner = getattr(net, "module", net)
    assert isinstance(inner, Net)
    return inner


def drop_batch_counters(model: nn.Module) -> None:
    """Stop counting batches in each BatchNorm: 50 tiny kernels a step for a number that only `momentum=None` reads."""
    for module in _counting_norms(model):
        module.num_batches_tracked = None


def restore_batch_counters(model: nn.Module, steps: int, device: torch.device) -> None:
    """Put the counters back, at the number of steps made, so that saved weights look like any other."""
    for module in _counting_norms(model):
        module.num_batches_tracked = torch.tensor(steps, dtype=torch.int64, device=device)


def _counting_norms(model: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [
        m
        for m in model.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats and m.momentum is not None
    ]
