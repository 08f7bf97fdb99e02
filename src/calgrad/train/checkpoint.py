"""Checkpoints that survive a kill at any moment.

A checkpoint is written beside its final name, flushed to the disk and renamed, and counts only once its SHA-256 lies
beside it (`sha256sum -c` can check it). The last two are kept: if the latest is truncated or damaged, the one before
serves, and the reader says so. Files are read with `weights_only=True`: no code in them is ever run.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from calgrad.checks import FileError
from calgrad.files import write_bytes, write_text

KEPT = 2


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write `state` as the checkpoint after `step` steps and drop all but the last two."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:09d}.pt"
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getbuffer()
    write_bytes(path, data, durable=True)
    write_text(_digest_path(path), f"{hashlib.sha256(data).hexdigest()}  {path.name}\n", durable=True)
    for old in list_checkpoints(folder)[KEPT:]:
        _digest_path(old).unlink(missing_ok=True)  # first, so that no half-removed checkpoint counts as one
        old.unlink(missing_ok=True)
    return path


def load_latest(folder: Path, *, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The latest checkpoint that is whole, on the CPU; None if there is none. `say` hears of each one passed over."""
    for path in list_checkpoints(folder):
        reason = _damage(path)
        if reason is None:
            return _read(path)
        say(f"checkpoint {path.name} is passed over: {reason}")
    return None


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoint files, latest first."""
    return sorted(folder.glob("step-*.pt"), reverse=True)


def clear_checkpoints(folder: Path) -> None:
    """Remove every checkpoint, for a run that is made anew."""
    for path in list_checkpoints(folder):
        _digest_path(path).unlink(missing_ok=True)
        path.unlink()


def _read(path: Path) -> dict[str, Any]:
    """A whole checkpoint's state; a whole file that is none of ours is an error, not a reason to start anew."""
    try:
        with zipfile.ZipFile(path) as archive:
            # torch.save never compresses: a member that is larger than its bytes is there to fill the memory.
            if any(member.file_size > member.compress_size for member in archive.infolist()):
                raise ValueError("it holds compressed data")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise TypeError(f"it holds a {type(state).__name__}")
    except Exception as error:  # a foreign file fails in many ways, and none may look like a fault of this program
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise FileError(f"{path} is whole but no checkpoint that can be read ({why:.300})") from error
    return state


def _damage(path: Path) -> str | None:
    try:
        expected = _digest_path(path).read_text().split()[0]
    except (OSError, IndexError):
        return "its checksum is missing, so it was not finished"
    with open(path, "rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    return None if actual == expected else "its checksum does not match, so it is truncated or damaged"


def _digest_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")
