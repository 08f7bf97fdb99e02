"""What every benchmark shares: honest timing, the machine's description, and one CSV of results.

A benchmark checks that the contenders agree before it times them, runs all of them in one process on one machine,
interleaved, and appends its rows to `results.csv` with `--record`.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

RESULTS = Path(__file__).with_name("results.csv")
COLUMNS = [
    "date",
    "benchmark",
    "case",
    "contender",
    "value",
    "unit",
    "machine",
    "threads",
    "python",
    "torch",
    "calgrad",
]


def machine() -> str:
    """The GPU's name where there is one in use, else the CPU's."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores"


def interleaved(contenders: dict[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """Best-of-`repeats` seconds a contender, taken in turns so that a slow minute of the machine hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        for name, work in contenders.items():
            start = time.perf_counter()
            work()
            if turn:  # the first turn warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in seconds.items()}


def microseconds(work: Callable[[], object], *, calls: int = 300, repeats: int = 7) -> float:
    """Median over `repeats` of the mean microseconds of one call."""
    work()
    means = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        means.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(means)


@dataclass
class Report:
    """Collects rows, prints them, checks the promises, and writes the CSV when asked."""

    benchmark: str
    rows: list[dict[str, object]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, case: str, contender: str, value: float, unit: str = "s") -> None:
        """Keep and print one measurement."""
        import calgrad

        self.rows.append(
            {
                "date": datetime.date.today().isoformat(),
                "benchmark": self.benchmark,
                "case": case,
                "contender": contender,
                "value": f"{value:.4g}",
                "unit": unit,
                "machine": machine(),
                "threads": torch.get_num_threads(),
                "python": platform.python_version(),
                "torch": torch.__version__,
                "calgrad": calgrad.__version__,
            }
        )
        print(f"{self.benchmark:12} {case:28} {contender:34} {value:10.4g} {unit}", flush=True)

    def promise(self, text: str, kept: bool) -> None:
        """Say whether a stated speed holds; a broken promise makes the script fail."""
        print(f"  {'kept  ' if kept else 'BROKEN'} {text}", flush=True)
        if not kept:
            self.failures.append(text)

    def finish(self, record: bool) -> None:
        """Append to the CSV when asked, and exit with 1 when a promise is broken."""
        if record:
            fresh = not RESULTS.exists()
            with RESULTS.open("a", newline="") as handle:
                writer = csv.DictWriter(handle, COLUMNS)
                if fresh:
                    writer.writeheader()
                writer.writerows(self.rows)
        sys.exit(1 if self.failures else 0)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--record", action="store_true", help="append the rows to results.csv")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    return parser


def logits_and_labels(
    rows: int, classes: int, *, temperature: float = 2.0, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Over-confident logits: labels are drawn from softmax(logits / temperature)."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator) * 4
    labels = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator).squeeze(1)
    return logits, labels
