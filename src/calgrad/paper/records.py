"""Runs as rows: everything the tables need of a run, in one line that is small enough to commit.

    row_of_run(folder)   measures a finished run: before and after the paper's temperature (the validation ECE's grid)
    read_rows(paths)     rows from run folders and from committed CSV files alike
    pool_rows(rows, m)   mean over seeds with a 95 % interval over seeds and test samples

A metric has a standard error over resampled test sets beside it (`ece_se`), so that a committed row still knows how
much of its value is the luck of the test set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from calgrad.checks import FileError
from calgrad.metrics import accuracy, adaptive_ece, brier, classwise_ece, ece, nll, noise_floor
from calgrad.paper.runs import Row, RunId, find_runs, identity_row, read_collected
from calgrad.posthoc import make_calibrator
from calgrad.predictions import Predictions
from calgrad.report.pooled import Estimate, Resampled, pool, resample, resampling_weights
from calgrad.train.record import Record

METRICS: dict[str, Callable[..., float]] = {
    "accuracy": accuracy,
    "ece": ece,
    "ada_ece": adaptive_ece,
    "classwise_ece": classwise_ece,
    "nll": nll,
    "brier": brier,
}
DRAWS = 200
"""Resampled test sets behind a standard error; its own error is then 5 %."""


@dataclass(frozen=True)
class RunRow:
    """One finished run; `values` maps a column (`ece`, `ece_se`, `ece_after_T`, `temperature`) to its number."""

    run: RunId
    samples: int
    values: dict[str, float]
    machine: str
    versions: str
    date: str
    commit: str

    def to_row(self) -> Row:
        """For a CSV file."""
        about = {"machine": self.machine, "versions": self.versions, "date": self.date, "commit": self.commit}
        return {**identity_row(self.run), "samples": self.samples, **self.values, **about}

    @classmethod
    def of_row(cls, row: Row) -> RunRow:
        """From a CSV file."""
        run = RunId.of_row(row)
        text = ("machine", "versions", "date", "commit")
        known = {*identity_row(run), "samples", *text}
        values = {k: float(v) for k, v in row.items() if k not in known and v not in ("", None)}
        return cls(run, int(row["samples"]), values, *(row[name] for name in text))


def row_of_run(folder: str | Path) -> RunRow:
    """Measure a finished run folder."""
    folder = Path(folder)
    record = Record.load(folder)
    if record.status != "finished":
        raise FileError(f"{folder} is not a finished run (its status is {record.status!r}); finish it first")
    val, test = (Predictions.load(folder / record.files[split]) for split in ("val", "test"))
    weights = resampling_weights(test.n, draws=DRAWS)
    values: dict[str, float] = {}
    # As published: T minimises the validation ECE on a grid. The NLL's exact optimum stands beside it.
    grid = make_calibrator("temperature-ece").fit(val.logits, val.labels)
    for view, log_probs in (("", test.log_probs), ("_after_T", grid.log_probs(test.logits))):
        values |= measured(log_probs, test.labels, weights, view=view)
    values["temperature"] = float(grid.temperature)  # type: ignore[attr-defined]
    exact = make_calibrator("temperature").fit(val.logits, val.labels)
    values["temperature_nll"] = float(exact.temperature)  # type: ignore[attr-defined]
    values["minutes"] = record.timings.get("total", math.nan) / 60
    values["images_per_second"] = record.timings.get("images_per_second", math.nan)
    return RunRow(
        run=RunId.of_record(record),
        samples=test.n,
        values=values,
        machine=str(record.device.get("name", "")),
        versions=" ".join(f"{k} {v}" for k, v in record.versions.items()),
        date=(record.finished or record.started)[:10],
        commit=str((record.git or {}).get("commit", ""))[:10],
    )


def measured(log_probs: Tensor, labels: Tensor, weights: Tensor, *, view: str = "") -> dict[str, float]:
    """Every metric of one model, its standard error over resampled test sets, and the noise floor of its ECE.

    `view` is appended to the names: "ece_after_T", and its error "ece_after_T_se".
    """
    probs = log_probs.exp()
    drawn = resample(log_probs, labels, weights)
    values: dict[str, float] = {}
    for name, metric in METRICS.items():
        values[name + view] = metric(logits=log_probs, labels=labels)
        draws = drawn.draws[name] if name in drawn.draws else _redrawn(metric, probs, labels)
        values[f"{name}{view}_se"] = float(draws.std())
    values[f"floor{view}"] = noise_floor(logits=log_probs).mean
    return values


def _redrawn(metric: Callable[..., float], probs: Tensor, labels: Tensor) -> Tensor:
    """A metric that no weighted sum gives, on resampled test sets."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, len(labels), (DRAWS // 4, len(labels)), generator=generator)
    return torch.tensor([metric(probs[index], labels[index]) for index in rows], dtype=torch.float64)


def read_rows(paths: Iterable[str | Path]) -> list[RunRow]:
    """Every finished run at or below `paths`, from its folder or from a committed CSV file, each once."""
    paths = list(paths)
    rows = [RunRow.of_row(row) for row in read_collected(paths, "runs")]
    known = {row.run for row in rows}
    for folder in find_runs(paths):
        record = Record.load(folder)
        if record.status == "finished" and RunId.of_record(record) not in known:
            rows.append(row_of_run(folder))
    return rows


def pool_rows(rows: Sequence[RunRow], metric: str) -> Estimate:
    """Mean of a column over the runs of one group, with its 95 % interval over seeds and test samples."""
    runs = []
    for row in rows:
        # Two draws with the row's own standard error. Runs share their test set, so their draws move together here: as
        # much spread as can be, which errs to the wide side.
        value, error = row.values[metric], row.values.get(f"{metric}_se", 0.0) / math.sqrt(2)
        runs.append(
            Resampled({metric: value}, {metric: torch.tensor([value - error, value + error], dtype=torch.float64)})
        )
    return pool(runs, metric, samples=rows[0].samples)


def grouped(rows: Iterable[RunRow]) -> dict[RunId, list[RunRow]]:
    """Rows by everything but the seed, in order of first appearance."""
    groups: dict[RunId, list[RunRow]] = {}
    for row in rows:
        groups.setdefault(row.run.group, []).append(row)
    return groups
