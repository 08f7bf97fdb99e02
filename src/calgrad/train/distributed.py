"""Several processes that compute what one would.

Every process takes its slice of the same global batch. Before the loss, the logits of all slices are gathered, so
each process computes the loss of the *whole* batch and differentiates it with respect to its own rows: the gradients
of the processes then add up to exactly the gradient one process would have. That holds for every loss and reduction,
also for those that couple the samples of a batch (mmce, soft-ece, avuc, ece-ce), and for slices of different length;
it costs one exchange of N x K numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from calgrad.checks import InputError


@dataclass(frozen=True)
class Group:
    """The processes of a run; the default is this process alone, for which every method is free."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def bounds(self, rows: int, rank: int | None = None) -> tuple[int, int]:
        """The slice of `rows` rows that a process (by default this one) takes: contiguous, in order, none twice."""
        rank = self.rank if rank is None else rank
        return rows * rank // self.world, rows * (rank + 1) // self.world

    def gather(self, local: Tensor, rows: int) -> Tensor:
        """All `rows` rows in order, from each process's own; gradients flow into this process's rows alone."""
        if self.world == 1:
            return local
        spans = [self.bounds(rows, rank) for rank in range(self.world)]
        counts = [stop - start for start, stop in spans]
        # Collectives want equal shapes: pad to the longest slice, cut afterwards.
        padded = local.new_zeros((max(counts), *local.shape[1:]))
        padded[: len(local)] = local.detach()
        slices = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(slices, padded)
        parts = [part[:count] for part, count in zip(slices, counts)]
        parts[self.rank] = local
        return torch.cat(parts)

    def any(self, *flags: bool, device: torch.device) -> tuple[bool, ...]:
        """For each flag, whether it is set in any process: all go on with the same answer."""
        if self.world == 1:
            return flags
        tensor = torch.tensor(flags, dtype=torch.int32, device=device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tuple(bool(flag) for flag in tensor.tolist())

    def same_everywhere(self, tensors: list[Tensor]) -> None:
        """Overwrite with the first process's values."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def barrier(self) -> None:
        """Wait for the others."""
        if self.world > 1:
            dist.barrier()

    def wrap(self, net: nn.Module, device: torch.device) -> nn.Module:
        """`net` with gradients averaged over the processes, and on GPUs with batch statistics of the whole batch."""
        if self.world == 1:
            return net
        if device.type == "cuda":
            net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        ids = [device.index] if device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(net, device_ids=ids)


@contextmanager
def process_group(device: str | None) -> Iterator[tuple[Group, torch.device]]:
    """Join the processes that `torchrun` started, if it did, and choose this one's device."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 and not dist.is_initialized():
        yield Group(), choose_device(device)
        return
    chosen = choose_device(device, local_rank=int(os.environ.get("LOCAL_RANK", "0")))
    ours = not dist.is_initialized()
    if ours:
        options: dict[str, Any] = {"device_id": chosen} if chosen.type == "cuda" else {}
        store, rank, world = next(dist.rendezvous("env://"))
        # After a restart torchrun's store may still hold the addresses of processes that are dead: a fresh corner of it.
        fresh = dist.PrefixStore(f"calgrad-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        backend = "nccl" if chosen.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=fresh, rank=rank, world_size=world, **options)
    try:
        yield Group(dist.get_rank(), dist.get_world_size()), chosen
    finally:
        if ours:
            dist.destroy_process_group()


def choose_device(name: str | None, *, local_rank: int | None = None) -> torch.device:
    """The device a name stands for, made current; None is CUDA where there is one."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"`device` must be cpu, cuda or cuda:N, got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"`device` must be cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError("`device` is cuda, but torch sees no CUDA device here; use device='cpu'")
        index = local_rank if local_rank is not None else device.index if device.index is not None else 0
        if index >= torch.cuda.device_count():
            raise InputError(f"`device` is cuda:{index}, but there are {torch.cuda.device_count()} CUDA devices")
        device = torch.device("cuda", index)
        torch.cuda.set_device(device)
    return device
