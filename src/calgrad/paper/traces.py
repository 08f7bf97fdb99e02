"""What a run leaves behind beside its result, as rows small enough to commit: epochs, gradients and confidences.

    epochs       one row an epoch: learning rate, training loss and what validation showed
    gradients    the last layer's gradient norm by sample, summarised: its quantiles in bins of the Brier score
                 (part "by-brier") and its histogram (part "density"), at the epochs a recipe names in `gradient_epochs`
    confidence   how many test predictions were right and wrong in each bin of confidence, at the end of the run and at
                 the epochs for which the run folder holds predictions (`test_50` or `val_50` among the record's files)

`trace_rows(paths, kind)` reads them from run folders and from the CSV files of `calgrad paper collect` alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calgrad.checks import FileError, InputError
from calgrad.metrics.binning import bin_sums, top_label
from calgrad.paper.runs import IDENTITY, Row, RunId, find_runs, identity_row, read_collected
from calgrad.predictions import Predictions
from calgrad.train.record import Record

BRIER_BINS = np.array([0, 0.01, 0.02, 0.05, *np.arange(1, 21) / 10])
LOG_NORM_BINS = np.linspace(-12, 2, 57)
CONFIDENCE_BINS = 20
EPOCH_COLUMNS = ("epoch", "lr", "train_loss", "val_accuracy", "val_ece", "val_nll")


def epoch_rows(folder: Path) -> list[Row]:
    """A row for each epoch of a run that was validated."""
    record = Record.load(folder)
    run = identity_row(RunId.of_record(record))
    validated = [entry for entry in record.epochs if "val_ece" in entry]
    return [{**run, **{name: entry.get(name, math.nan) for name in EPOCH_COLUMNS}} for entry in validated]


def gradient_rows(folder: Path) -> list[Row]:
    """The summaries of every gradient file of a run."""
    record = Record.load(folder)
    run = identity_row(RunId.of_record(record))
    rows: list[Row] = []
    for key, name in record.files.items():
        if key.startswith("gradients_"):
            columns = _read_npz(folder / name)
            epoch = int(key.removeprefix("gradients_"))
            for summary in [*_by_brier(columns), *_density(columns)]:
                rows.append({**run, "epoch": epoch, **summary})
    return rows


def _by_brier(columns: dict[str, np.ndarray]) -> list[Row]:
    rows: list[Row] = []
    which = np.digitize(columns["brier"], BRIER_BINS[1:-1], right=True)
    for b in range(len(BRIER_BINS) - 1):
        norms = columns["gradient_norm"][which == b]
        if len(norms):
            q10, q50, q90 = (float(q) for q in np.quantile(norms, (0.1, 0.5, 0.9)))
            edges = {"low": float(BRIER_BINS[b]), "high": float(BRIER_BINS[b + 1])}
            rows.append({"part": "by-brier", **edges, "count": len(norms), "q10": q10, "q50": q50, "q90": q90})
    return rows


def _density(columns: dict[str, np.ndarray]) -> list[Row]:
    logs = np.log10(np.clip(columns["gradient_norm"], 10.0 ** LOG_NORM_BINS[0], 10.0 ** LOG_NORM_BINS[-1]))
    counts, edges = np.histogram(logs, LOG_NORM_BINS)
    nothing = {"q10": math.nan, "q50": math.nan, "q90": math.nan}
    return [
        {"part": "density", "low": float(edges[b]), "high": float(edges[b + 1]), "count": int(n), **nothing}
        for b, n in enumerate(counts)
        if n
    ]


def confidence_rows(folder: Path) -> list[Row]:
    """Right and wrong predictions by confidence, for every epoch whose predictions the run folder holds."""
    record = Record.load(folder)
    run = RunId.of_record(record)
    rows: list[Row] = []
    for key, name in record.files.items():
        match = re.fullmatch(r"(test|val)_(\d+)|test", key)
        if match and not (key == "test" and f"test_{run.epochs}" in record.files):
            epoch = int(match[2] or run.epochs)
            predictions = Predictions.load(folder / name)
            sums = bin_sums(*top_label(predictions.probs, predictions.labels), bins=CONFIDENCE_BINS)
            for b, (count, correct) in enumerate(zip(sums.count.tolist(), sums.correct.tolist(), strict=True)):
                edges = {"low": b / CONFIDENCE_BINS, "high": (b + 1) / CONFIDENCE_BINS}
                counts = {"correct": int(correct), "wrong": int(count - correct)}
                rows.append({**identity_row(run), "epoch": epoch, "split": match[1] or "test", **edges, **counts})
    return sorted(rows, key=lambda row: (row["epoch"], row["low"]))


KINDS: dict[str, Callable[[Path], list[Row]]] = {
    "epochs": epoch_rows,
    "gradients": gradient_rows,
    "confidence": confidence_rows,
}
_TEXT = {*IDENTITY, "part", "split"} - {"epochs", "seed"}


def trace_rows(paths: Iterable[str | Path], kind: str) -> list[Row]:
    """All rows of a kind at or below `paths`, numbers as numbers; a run that is both committed and here counts once."""
    paths = list(paths)
    rows = [_numbers(row) for row in read_collected(paths, kind)]
    known = {RunId.of_row(row) for row in rows}
    for folder in find_runs(paths):
        if RunId.of_record(Record.load(folder)) not in known:
            rows += KINDS[kind](folder)
    return rows


def one_setting(rows: Sequence[Row], *, cell: str | None = None, recipe: str | None = None) -> list[Row]:
    """The rows of one recipe on one data set and network: the one asked for, else the longest one there is.

    Args:
        rows: With the identity columns.
        cell: "cifar10/resnet50".
        recipe: The recipe's name.
    """
    wanted = [
        row
        for row in rows
        if (cell is None or f"{row['data']}/{row['model']}" == cell) and (recipe is None or row["recipe"] == recipe)
    ]
    if not wanted:
        known = sorted({f"{r['data']}/{r['model']} (recipe {r['recipe']})" for r in rows})
        raise InputError(
            f"no run of {cell or 'any network'} by {recipe or 'any recipe'}; there are: {', '.join(known)}"
        )

    def setting(row: Row) -> tuple[Any, ...]:
        return row["data"], row["model"], row["recipe"], int(row["epochs"]), row["settings"]

    runs = {setting(row): len({RunId.of_row(r) for r in wanted if setting(r) == setting(row)}) for row in wanted}
    longest = max(runs, key=lambda s: (s[3], runs[s]))
    return [row for row in wanted if setting(row) == longest]


def with_losses(rows: Sequence[Row], losses: Sequence[str]) -> list[Row]:
    """The rows of these losses, each "focal" or, for certain options, "bsce-gra:gamma=2;beta=2"; all where none is named."""
    wanted = [(name, set(filter(None, options.split(";")))) for name, _, options in (x.partition(":") for x in losses)]

    def is_wanted(row: Row) -> bool:
        return any(row["loss"] == name and options <= set(row["options"].split(";")) for name, options in wanted)

    kept = [row for row in rows if not wanted or is_wanted(row)]
    if not kept:
        known = sorted({RunId.of_row(row).loss_label for row in rows})
        raise InputError(f"no run of {', '.join(losses)}; there are: {', '.join(known)}")
    return kept


def setting_title(rows: Sequence[Row]) -> str:
    """What the rows of one setting were made with."""
    run = RunId.of_row(rows[0])
    return f"{run.data}, {run.model}, {run.length}"


def loss_labels(rows: Sequence[Row]) -> list[Row]:
    """The rows with a column `label`: the loss, and its options where one loss was run with several."""
    options: dict[str, set[str]] = {}
    for row in rows:
        options.setdefault(row["loss"], set()).add(row["options"])
    return [
        {**row, "label": row["loss"] if len(options[row["loss"]]) == 1 else f"{row['loss']} ({row['options']})"}
        for row in rows
    ]


def _numbers(row: Row) -> Row:
    return {k: v if k in _TEXT else int(v) if re.fullmatch(r"-?\d+", v) else float(v or "nan") for k, v in row.items()}


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in ("gradient_norm", "brier")}
    except (OSError, ValueError, KeyError) as error:
        raise FileError(f"{path} cannot be read as gradients of a run: {error}") from error
