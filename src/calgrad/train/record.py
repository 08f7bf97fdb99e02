"""The record of a run: what was done, with what, how long it took and what each epoch showed.

`record.json` is the one file by which a run folder is known: whether it is finished, which recipe and seed made it,
and how its numbers came about. It is plain JSON and is replaced as a whole.
"""

from __future__ import annotations

import functools
import json
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from calgrad._version import __version__
from calgrad.checks import FileError, InputError
from calgrad.files import write_text
from calgrad.train.recipe import Recipe

RECORD = "record.json"


@dataclass
class Record:
    """What happened in a run.

    Attributes:
        recipe: The recipe as a plain mapping.
        seed: The training seed.
        fingerprint: `Recipe.fingerprint`: two runs with the same one differ by their seed alone.
        status: running, interrupted, diverged or finished.
        versions: Of calgrad, torch, Python and CUDA.
        device: What it was computed on.
        git: Commit and whether the tree had changes, where the run was started inside a repository.
        epochs: One mapping an epoch: epoch (done), lr, train_loss, seconds, and val_* where it was validated.
        timings: Seconds: setup, compile, train, evaluate, checkpoint, total (over all resumed parts); `images` trained
            on, and images_per_second of the steps.
        notes: Whatever a reader should know: a passed-over checkpoint, a CUDA graph that could not be captured.
        files: What else the run folder holds.
    """

    recipe: dict[str, Any]
    seed: int
    fingerprint: str
    status: str = "running"
    started: str = ""
    finished: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    git: dict[str, Any] | None = None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def start(cls, recipe: Recipe, seed: int, device: torch.device, *, processes: int = 1) -> Record:
        """A fresh record of this machine and this moment."""
        return cls(
            recipe=recipe.to_dict(),
            seed=seed,
            fingerprint=recipe.fingerprint(),
            started=now(),
            versions=versions(),
            device=describe_device(device, processes),
            git=git_state(str(Path.cwd())),
        )

    @classmethod
    def load(cls, folder: str | Path) -> Record:
        """Read the record of a run folder."""
        path = Path(folder) / RECORD
        try:
            content = json.loads(path.read_text())
            return cls(**content)
        except FileNotFoundError:
            raise FileError(f"{folder} is not a run folder: it has no {RECORD}") from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError, TypeError) as error:
            raise FileError(f"{path} cannot be read as a run's record: {error}") from error

    def save(self, folder: Path) -> None:
        """Replace `record.json`; the checkpoint holds the record too, so there is no need to wait for the disk."""
        text = json.dumps(asdict(self), indent=1, allow_nan=False)
        write_text(folder / RECORD, text + "\n")

    def add(self, what: str, amount: float) -> None:
        """Add to one of `timings`: a resumed run goes on adding."""
        self.timings[what] = round(self.timings.get(what, 0.0) + amount, 4)

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)


def same_run(record: Record, recipe: Recipe, seed: int, folder: Path) -> None:
    """Refuse to go on in a folder that another recipe or seed made."""
    if record.fingerprint == recipe.fingerprint() and record.seed == seed:
        return
    new = {**recipe.to_dict(), "seed": seed}
    old = {**record.recipe, "seed": record.seed}
    changed = [f"{k}: {old.get(k)!r} there, {v!r} here" for k, v in new.items() if old.get(k) != v and k != "name"]
    raise InputError(
        f"{folder} holds a run of another recipe or seed ({'; '.join(changed) or 'fingerprints differ'}); "
        "choose another folder, or overwrite it (overwrite=True, --overwrite)"
    )


def now() -> str:
    """The time as ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """The versions that can change a number."""
    found = {"calgrad": __version__, "torch": torch.__version__, "python": platform.python_version()}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def describe_device(device: torch.device, processes: int = 1) -> dict[str, Any]:
    """What the run is computed on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "type": device.type,
        "name": name,
        "threads": torch.get_num_threads(),
        "processes": processes,
        "platform": sys.platform,
    }


@functools.cache
def git_state(folder: str) -> dict[str, Any] | None:
    """Commit and dirtiness of the repository around `folder`; None outside one, or without git."""

    def ask(*command: str) -> str:
        done = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.SubprocessError):
        return None
