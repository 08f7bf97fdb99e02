"""When the GPU's memory does not suffice: find out which batch would fit, and say so.

Activations grow with the batch, but how fast depends on network, precision and allocator; so the answer is tried, not
computed: the step's forward and backward pass at half the batch, a quarter, ..., without touching the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from calgrad.checks import CalgradError
from calgrad.train.run import Run


class DeviceMemoryError(CalgradError):
    """The device has too little memory for the batch."""


@contextmanager
def explained(run: Run) -> Iterator[None]:
    """Within the block, a device that is out of memory is an error that names the batch size that would fit."""
    try:
        yield
        return
    except torch.OutOfMemoryError as error:
        said = str(error).split(". ")[0]
    # Outside the handler: the traceback of the error would keep the tensors of the failed step alive.
    batch = run.recipe.batch
    if run.group.world > 1:  # the others are not in step with this one, so nothing can be tried together
        advice = f"try --set batch={batch // 2}, or more processes"
    elif fits := largest_batch(run):
        advice = f"batch {fits} fits (tried just now): --set batch={fits}, with the learning rate scaled to it"
    else:
        advice = "not even a batch of 1 fits: a smaller network or smaller images are needed"
    raise DeviceMemoryError(f"{run.device} is out of memory at batch {batch} ({said}); {advice}")


def largest_batch(run: Run) -> int:
    """The largest of batch/2, batch/4, ... that one step fits at; 0 if none does."""
    size = run.recipe.batch // 2
    while size:
        _release(run)
        try:
            run.step.criterion(*run.step.forward(size)).backward()
        except torch.OutOfMemoryError:
            size //= 2
        else:
            _release(run)
            return size
    return 0


def _release(run: Run) -> None:
    run.step.optimiser.zero_grad(set_to_none=True)
    if run.device.type == "cuda":
        torch.cuda.empty_cache()
