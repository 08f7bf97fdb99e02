"""Results in one place, a row a run.

    FOLDER/results.csv           every finished run at or below FOLDER, sorted
    FOLDER/events.jsonl          what happened when: a line each time a run ends, well or badly
    <run folder>/row.json        the run's row, so that it is measured once

The run folder is the truth (record and predictions); row.json is kept beside it and believed only while it belongs to
the record, and results.csv is made from those rows as a whole. So writers cannot lose or double each other's rows: each one
takes the lock, reads what all have left, and replaces the file. Lines of events.jsonl are appended under the same lock.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calgrad.files import write_text
from calgrad.metrics import accuracy, adaptive_ece, brier, classwise_ece, ece, nll
from calgrad.predictions import Predictions
from calgrad.sweep.cost import Speed
from calgrad.sweep.identity import RunKey
from calgrad.train.record import RECORD, Record, now

ROW = "row.json"
METRICS = {
    "accuracy": accuracy,
    "ece": ece,
    "ada_ece": adaptive_ece,
    "classwise_ece": classwise_ece,
    "nll": nll,
    "brier": brier,
}
"""Of the test set; those of validation stand beside them as val_*."""

Row = dict[str, Any]


class Ledger:
    """The results of every sweep into one folder.

    >>> import tempfile
    >>> Ledger(Path(tempfile.mkdtemp())).rows()
    []
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def table(self) -> Path:
        """Where the rows are."""
        return self.folder / "results.csv"

    def note(self, event: str, run_folder: Path, **about: Any) -> None:
        """Append a line to events.jsonl."""
        entry = {"time": now(), "event": event, "run": self._name(run_folder), **about}
        with self._locked(), open(self.folder / "events.jsonl", "ab") as file:
            file.write((json.dumps(entry) + "\n").encode())

    def events(self) -> list[Row]:
        """Every event so far."""
        path = self.folder / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rows(self) -> list[Row]:
        """A row for every finished run at or below the folder, from the run folders themselves."""
        found = []
        for path in self.folder.rglob(RECORD):
            record = Record.load(path.parent)
            if record.status == "finished":
                found.append({**row_of(path.parent, record), "folder": self._name(path.parent)})
        return sorted(found, key=lambda row: (RunKey.of_row(row), row["folder"]))

    def save(self) -> list[Row]:
        """Write results.csv anew and return its rows."""
        with self._locked():
            rows = self.rows()
            write_text(self.table, csv_text(rows), durable=True)
        return rows

    def _name(self, run_folder: Path) -> str:
        return os.path.relpath(run_folder, self.folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / ".lock", "ab") as file:
            try:
                import fcntl
            except ImportError:
                pass
            else:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def measure(folder: Path, record: Record) -> Row:
    """The row of a finished run: who it is, what the test set says, what validation said last, on what and when."""
    test = Predictions.load(folder / record.files["test"])
    row: Row = {**asdict(RunKey.of_record(record)), "samples": test.n}
    row |= {name: float(metric(logits=test.logits, labels=test.labels)) for name, metric in METRICS.items()}
    row |= {k: v for k, v in record.epochs[-1].items() if k.startswith("val_")}
    row["minutes"] = record.timings.get("total", 0.0) / 60
    row["images_per_second"] = record.timings.get("images_per_second", 0.0)
    row["machine"] = str(record.device.get("name", ""))
    row["versions"] = " ".join(f"{k} {v}" for k, v in record.versions.items())
    row["finished"] = record.finished
    row["commit"] = str((record.git or {}).get("commit", ""))[:10]
    return row


def row_of(folder: Path, record: Record) -> Row:
    """The row kept beside a finished run, if it belongs to this very record; else measured, and kept."""
    mark = [record.fingerprint, record.seed, record.started, record.finished]
    try:
        kept = json.loads((folder / ROW).read_text())
        if kept["of"] == mark:
            return dict(kept["row"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    row = measure(folder, record)
    write_text(folder / ROW, json.dumps({"of": mark, "row": row}))
    return row


def speeds(rows: Sequence[Mapping[str, Any]]) -> list[Speed]:
    """What the rows' runs measured, for `calgrad.sweep.cost.estimate`."""
    return [Speed(r["data"], r["model"], float(r["images_per_second"]), r["machine"]) for r in rows]


def csv_text(rows: Sequence[Row]) -> str:
    """Rows as CSV, numbers with six digits; a column for whatever any row has."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(k for row in rows for k in row)), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return out.getvalue()
