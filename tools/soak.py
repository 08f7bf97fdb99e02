"""Hours of small runs in one process: does anything grow? Memory, open files, threads, child processes.

    python tools/soak.py --minutes 120

Each round trains, is interrupted and resumed, evaluates in a stream, fits, saves and loads a calibrator. After
a tenth of the time (caches have filled by then) the counts are noted, and at the end compared. Exits with 1 if open files,
threads or children grew at all, or memory by more than `--allowed` MiB; and at once if two rounds differ in a bit.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import torch

from calgrad import load_calibrator, make_calibrator
from calgrad.metrics import evaluate_shards
from calgrad.predictions import Predictions
from calgrad.train import Recipe, train

RECIPE = Recipe(
    data="digits", model="cnn", model_options={"width": 4}, epochs=2, batch=100, loss="consistency-gra", ema=0.9
)


class StopEarlyError(Exception):
    """Stands for whatever ends a run before its end."""


def one_round(folder: Path) -> str:
    """Everything once; the digest of what came out."""

    def stop(entry: object) -> None:
        raise StopEarlyError

    with suppress(StopEarlyError):
        train(RECIPE, 1, folder=folder, device="cpu", on_epoch=stop, quiet=True)
    train(RECIPE, 1, folder=folder, device="cpu", quiet=True)
    files = [folder / f"predictions-{split}.npz" for split in ("val", "test")]
    evaluation = evaluate_shards(files, bootstrap=50)
    val = Predictions.load(files[0])
    make_calibrator("temperature").fit(val.logits, val.labels).save(folder / "calibrator.json")
    load_calibrator(folder / "calibrator.json")(val.logits)
    digest = hashlib.sha256((folder / "weights.safetensors").read_bytes())
    digest.update(files[1].read_bytes() + evaluation.to_json().encode())
    return digest.hexdigest()


def counts() -> dict[str, float]:
    """What this process holds now."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {
        "memory_mib": int(status["VmRSS"].split()[0]) / 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "python_threads": threading.active_count(),
        "children": len(children),
    }


def main() -> None:
    """Run rounds until the time is up, then compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--allowed", type=float, default=20.0, help="MiB that memory may grow by")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started, rounds, first, settled = time.monotonic(), 0, "", None
    end = started + 60 * options.minutes
    while (moment := time.monotonic()) < end or rounds < 4:
        with tempfile.TemporaryDirectory() as folder:
            digest = one_round(Path(folder) / "run")
        first = first or digest
        if digest != first:
            sys.exit(f"round {rounds + 1} gave other bits than the first: {digest} after {first}")
        rounds += 1
        if settled is None and rounds >= 2 and moment - started > 6 * options.minutes:
            settled = counts()
            print(f"after {rounds} rounds: {settled}", flush=True)
    now = counts()
    assert settled is not None
    grown = {name: now[name] - settled[name] for name in now}
    print(f"after {rounds} rounds: {now}\ngrown by: {grown}")
    failed = [name for name, by in grown.items() if by > (options.allowed if name == "memory_mib" else 0)]
    sys.exit(f"grew: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
