"""From run folders to files that are small enough to commit: `calgrad paper collect RUNS -o results/cifar10`.

    results/cifar10.runs.csv         a row a run: every metric, before and after T
    results/cifar10.epochs.csv       a row a validated epoch
    results/cifar10.gradients.csv    gradient norms, summarised
    results/cifar10.confidence.csv   right and wrong predictions by confidence

Collecting again into the same files replaces the rows of the same runs and keeps the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from calgrad.checks import InputError
from calgrad.paper.records import row_of_run
from calgrad.paper.runs import Row, find_runs, merge_rows, write_csv
from calgrad.paper.traces import KINDS
from calgrad.train.record import Record


def collect(
    paths: Iterable[str | Path], out: Path, *, on_run: Callable[[Path], None] | None = None
) -> tuple[list[Path], list[Path]]:
    """Write the rows of every finished run at or below `paths`; return the files written and the runs left out."""
    folders = find_runs(paths)
    finished = [folder for folder in folders if Record.load(folder).status == "finished"]
    if not finished:
        raise InputError(f"no finished run among the {len(folders)} run folders given")
    rows: dict[str, list[Row]] = {"runs": [], **{kind: [] for kind in KINDS}}
    for folder in finished:
        rows["runs"].append(row_of_run(folder).to_row())
        for kind, read in KINDS.items():
            rows[kind] += read(folder)
        if on_run:
            on_run(folder)
    stem = out.with_suffix("") if out.suffix == ".csv" else out
    written = []
    for kind, found in rows.items():
        if found:
            path = stem.with_name(f"{stem.name.removesuffix('.runs')}.{kind}.csv")
            written.append(write_csv(path, merge_rows(path, found)))
    return written, [folder for folder in folders if folder not in finished]
