"""Which run is which beside the paper's, and where runs and rows are found; `calgrad.sweep.identity` has the columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

from calgrad.checks import FileError
from calgrad.sweep.identity import RunKey
from calgrad.train.record import RECORD

FULL_EPOCHS = {"cifar10": 350, "cifar100": 350, "tiny-imagenet": 100, "imagenet": 90}
"""Epochs of the published runs; the ViT is fine-tuned for `VIT_EPOCHS`."""
VIT_EPOCHS = 50

Row = dict[str, Any]
"""A line of a CSV file: column -> value."""


@dataclass(frozen=True, order=True)
class RunId(RunKey):
    """What identifies a run among all others, beside the paper's."""

    @property
    def published_epochs(self) -> int | None:
        """How long the paper trained this; None where the paper has no such run."""
        return VIT_EPOCHS if self.model.startswith("hf:") else FULL_EPOCHS.get(self.data)

    @property
    def length(self) -> str:
        """The length in words: "350 epochs", or "30 of 350 epochs" for a shortened run."""
        full = self.published_epochs
        return f"{self.epochs} epochs" if full in (None, self.epochs) else f"{self.epochs} of {full} epochs"


IDENTITY = tuple(f.name for f in fields(RunId))


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Every folder with a record at or below `paths`; CSV files among them are somebody else's."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileError(
                f"{path} does not exist; give run folders, a folder of them, or a CSV of `calgrad paper collect`"
            )
        if path.is_dir():
            found += sorted(record.parent for record in path.rglob(RECORD))
    return list(dict.fromkeys(found))


def read_collected(paths: Iterable[str | Path], kind: str) -> list[Row]:
    """The rows of `*.<kind>.csv` files at or below `paths`, as text."""
    rows: list[Row] = []
    for path in map(Path, paths):
        candidates = sorted(path.rglob(f"*.{kind}.csv")) if path.is_dir() else [path] if path.suffix == ".csv" else []
        for candidate in candidates:
            if candidate.name.endswith(f".{kind}.csv"):
                rows += read_csv(candidate, needed=IDENTITY)
    return rows


def read_csv(path: Path, *, needed: Sequence[str] = ()) -> list[Row]:
    """A CSV file as rows of text; refuses one without the needed columns."""
    try:
        reader = csv.DictReader(io.StringIO(path.read_text()))
        rows = [dict(row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path} cannot be read as CSV: {error}") from error
    missing = [name for name in needed if name not in (reader.fieldnames or ())]
    if missing:
        raise FileError(f"{path} lacks the columns {', '.join(missing)}: it was not written by `calgrad paper collect`")
    return rows


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    """Rows as CSV, numbers with six digits; the columns are those of the first row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    path.write_text(out.getvalue())
    return path


def merge_rows(path: Path, rows: Sequence[Row]) -> list[Row]:
    """`rows` and those of the file at `path` that belong to other runs, sorted by run."""
    ours = {astuple(RunId.of_row(row)) for row in rows}
    kept = [r for r in read_csv(path, needed=IDENTITY) if astuple(RunId.of_row(r)) not in ours] if path.exists() else []
    return sorted([*kept, *rows], key=lambda row: RunId.of_row(row))


def identity_row(run: RunId) -> Row:
    """The identity as the first columns of a row."""
    return asdict(run)
