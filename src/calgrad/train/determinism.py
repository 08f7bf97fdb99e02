"""The same bits again, on a GPU too.

On a CPU every run is repeatable as it is. On CUDA the fastest kernels add in no fixed order; with
`CALGRAD_DETERMINISTIC=1` in the environment (or after `torch.use_deterministic_algorithms(True)`) only those are used
that do, and cuDNN does not choose by timing. It costs speed; same machine, same software, same seed: same bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

VARIABLE = "CALGRAD_DETERMINISTIC"


@contextmanager
def chosen_kernels(device: torch.device) -> Iterator[bool]:
    """Within the block, kernels are deterministic if that was asked for (yields whether), and the fastest if not."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    asked = before[0] or os.environ.get(VARIABLE, "") not in ("", "0")
    if asked and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it is first used
    torch.use_deterministic_algorithms(asked)
    torch.backends.cudnn.benchmark = device.type == "cuda" and not asked
    try:
        yield asked
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
