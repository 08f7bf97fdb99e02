"""An exponential moving average of the weights, kept on the device and updated inside the step.

`average <- decay * average + (1 - decay) * weights`, for parameters and floating-point buffers alike. Evaluation
swaps the average into the very tensors the network uses, and back, bit for bit: addresses stay, so a captured CUDA
graph stays valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Ema:
    """The moving average of `model`'s weights.

    >>> model = nn.Linear(2, 2)
    >>> ema = Ema(model, decay=0.9)
    >>> ema.update()
    >>> with ema.swapped_in():
    ...     pass  # model holds the average here
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        self.decay = decay
        tensors = [*model.parameters(), *model.buffers()]
        self.live: list[Tensor] = [t.detach() for t in tensors if t.is_floating_point()]
        self.average: list[Tensor] = [t.clone() for t in self.live]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average one step towards the live weights."""
        torch._foreach_lerp_(self.average, self.live, 1 - self.decay)

    def state_tensors(self) -> dict[str, Tensor]:
        """The average by number, for checkpoints."""
        return {str(number): tensor for number, tensor in enumerate(self.average)}

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Within the block the model's own tensors hold the average."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        kept = [t.clone() for t in self.live]
        torch._foreach_copy_(self.live, self.average)
        torch._foreach_copy_(self.average, kept)
