"""Tables, `.csv` and `.parquet`: a row a sample, `label`, optionally `id`, and a column a class.

The class columns are `logit_0 ... logit_{K-1}` or `prob_0 ...` in any order, or carry the classes' names (`logit_cat`,
`logit_dog`), whose order in the file is then the order of the classes; with names, a label may be a name or an index.
Parquet may instead hold one list column, `logits` or `probs`. Any other column is refused: a misspelt one must not be
lost in silence.

Parquet needs pyarrow. CSV uses it where it is installed and Python's csv module where it is not.
"""

from __future__ import annotations

import csv
import importlib.util
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calgrad.checks import FileError, InputError
from calgrad.files import memory
from calgrad.predictions.files import DEFAULT_ROWS, Piece, Pieces, PredictionFile

_HEADER_LIMIT = 1 << 24
_EXPECTED = (
    "expected columns: label, optionally id, and a column a class: logit_0 ... logit_{K-1} (or prob_0 ...), or with "
    "class names: logit_cat, logit_dog, ..."
)


@dataclass(frozen=True)
class Columns:
    """Which columns of a table mean what: `values` are one column a class, or one column of lists (`in_lists`)."""

    space: str
    values: list[str]
    classes: int
    class_names: list[str] | None
    has_id: bool
    in_lists: bool = False

    def labels(self, column: np.ndarray) -> np.ndarray:
        """Class indices from a column of integers, or of class names (or digits, in a CSV)."""
        if column.dtype.kind in "iu":
            return column.astype(np.int64)
        index = {name: i for i, name in enumerate(self.class_names or ())}
        try:
            return np.array([index[text] if text in index else int(text) for text in column.tolist()], dtype=np.int64)
        except (ValueError, TypeError) as error:
            known = f" or one of {', '.join(index)}" if index else ""
            raise InputError(f"`label` must be a class index{known}: {error}") from None


def read(path: Path) -> PredictionFile:
    """Open a `.csv` or `.parquet` table."""
    return _read_csv(path) if path.suffix.lower() == ".csv" else _read_parquet(path)


def columns_of(path: Path, names: list[str]) -> Columns:
    """Sort out a table's columns by name, strictly."""
    groups = {space: [name for name in names if name.startswith(f"{space}_")] for space in ("logit", "prob")}
    space = "prob" if groups["prob"] else "logit"
    values = groups[space]
    other = [name for name in names if name not in values and name not in ("label", "id")]
    problem = None
    if len(names) == 1 and any(sign in names[0] for sign in ";\t"):
        problem = "its columns are not separated by commas"
    elif len(set(names)) < len(names):
        problem = f"it has a column twice: {', '.join(sorted({name for name in names if names.count(name) > 1}))}"
    elif groups["logit"] and groups["prob"]:
        problem = "it has both logit_ and prob_ columns: keep one kind"
    elif "label" not in names:
        problem = "it has no column `label`"
    elif not values:
        problem = "it has no logit_ or prob_ columns"
    elif other:
        problem = f"unknown columns {', '.join(map(repr, other[:8]))}"
    suffixes = [name.removeprefix(f"{space}_") for name in values]
    digits = [suffix.isdecimal() for suffix in suffixes]
    if problem is None and any(digits) and sorted(suffixes) != sorted(str(i) for i in range(len(values))):
        problem = f"numbered columns must run from {space}_0 to {space}_{len(values) - 1}"
    if problem:
        raise FileError(
            f"{path}: {problem}; {_EXPECTED}; found: {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
        )
    if any(digits):
        values = [f"{space}_{i}" for i in range(len(values))]
    return Columns(f"{space}s", values, len(values), None if any(digits) else suffixes, "id" in names)


def _file(path: Path, columns: Columns, rows: int | None, nbytes: int, pieces: Pieces) -> PredictionFile:
    meta = {"class_names": columns.class_names} if columns.class_names else {}
    return PredictionFile(path, columns.classes, rows, columns.space, nbytes, pieces, meta=meta)


# ----------------------------------------------------------------------------------------------------------------- CSV


def _read_csv(path: Path) -> PredictionFile:
    with open(path, newline="", encoding="utf-8-sig") as file:
        line = file.readline(_HEADER_LIMIT)
    if len(line) == _HEADER_LIMIT:
        raise FileError(f"{path} is no table: its first line has more than {_HEADER_LIMIT:,} characters")
    names = [name.strip() for name in next(csv.reader([line]), [])]
    columns = columns_of(path, names)
    reader = _csv_by_arrow if importlib.util.find_spec("pyarrow") else _csv_by_hand

    def pieces(limit: int | None) -> Iterator[Piece]:
        return reader(path, names, columns, limit)

    # A number takes about as many characters as float64 takes bytes, or more.
    return _file(path, columns, None, path.stat().st_size, pieces)


def _csv_by_hand(path: Path, names: list[str], columns: Columns, limit: int | None) -> Iterator[Piece]:
    where = [names.index(name) for name in columns.values]
    label, name = names.index("label"), names.index("id") if columns.has_id else None
    with open(path, newline="", encoding="utf-8-sig") as file:
        table = csv.reader(file, strict=True)
        next(table)
        filled = (row for row in table if row)
        while rows := list(itertools.islice(filled, limit)):
            wrong = next((row for row in rows if len(row) != len(names)), None)
            if wrong is not None:
                raise ValueError(
                    f"a row of {len(wrong)} cells where the header has {len(names)}: {','.join(wrong)!r:.80}"
                )
            values = np.array([[row[i] for i in where] for row in rows]).astype(np.float64)
            ids = None if name is None else np.array([row[name] for row in rows], dtype=np.str_)
            yield Piece(values, columns.labels(np.array([row[label] for row in rows], dtype=np.str_)), ids)


def _csv_by_arrow(path: Path, names: list[str], columns: Columns, limit: int | None) -> Iterator[Piece]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    types = dict.fromkeys(columns.values, pa.float64()) | {"label": pa.string(), "id": pa.string()}
    options = {
        "read_options": arrow_csv.ReadOptions(column_names=names, skip_rows=1, block_size=8 * 2**20),
        "convert_options": arrow_csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False),
    }
    with arrow_csv.open_csv(path, **options) as batches:
        yield from _regrouped((_piece(batch, columns) for batch in batches), limit)


# ------------------------------------------------------------------------------------------------------------- Parquet


def _read_parquet(path: Path) -> PredictionFile:
    if importlib.util.find_spec("pyarrow") is None:
        raise FileError(f"{path}: reading Parquet needs pyarrow: pip install calgrad[parquet]")
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        rows, names = file.metadata.num_rows, list(file.schema_arrow.names)
        lists = [name for name in ("logits", "probs") if name in names and _is_list(file.schema_arrow.field(name).type)]
        if len(lists) == 1:
            _refuse_too_long(path, file)
            classes = len(next(file.iter_batches(1, columns=lists)).column(0)[0]) if rows else 0
            # A list column stands for its numbered columns while the other names are checked.
            others = [name for name in names if name != lists[0]]
            numbered = [f"{lists[0][:-1]}_{i}" for i in range(max(classes, 1))]
            checked = columns_of(path, [*others, *numbered])
            columns = Columns(lists[0], lists, classes, None, checked.has_id, in_lists=True)
        else:
            columns = columns_of(path, names)

    def pieces(limit: int | None) -> Iterator[Piece]:
        with parquet.ParquetFile(path) as file:
            batches = file.iter_batches(limit or DEFAULT_ROWS)
            yield from _regrouped((_piece(batch, columns) for batch in batches), limit)

    return _file(path, columns, rows, rows * (columns.classes + 1) * 8, pieces)


def _refuse_too_long(path: Path, file: Any) -> None:
    """Refuse lists that unfold beyond memory, by the header alone: equal numbers take next to no room in a file."""
    for group in range(min(1, file.metadata.num_row_groups)):
        about = file.metadata.row_group(group)
        most = 8 * max(about.column(i).num_values for i in range(about.num_columns))
        if most > memory():
            raise FileError(
                f"{path} unfolds into {most / 2**30:,.2f} GiB, and this process may use {memory() / 2**30:,.2f}"
            )


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _piece(batch: Any, columns: Columns) -> Piece:
    for name in [*columns.values, "label", *(["id"] if columns.has_id else [])]:
        if missing := batch.column(name).null_count:
            raise InputError(f"column `{name}` has {missing} empty cells")
    labels = columns.labels(_plain(batch.column("label")))
    ids = _plain(batch.column("id")) if columns.has_id else None
    if not columns.in_lists:
        return Piece(np.column_stack([_plain(batch.column(name)) for name in columns.values]), labels, ids)
    import pyarrow.compute as pc

    lists = batch.column(columns.values[0])
    lengths = pc.unique(pc.list_value_length(lists)).to_pylist()
    if lengths not in ([], [columns.classes]):
        raise InputError(f"the lists in `{columns.values[0]}` must all have {columns.classes} numbers, got {lengths}")
    return Piece(_plain(lists.flatten()).reshape(len(lists), columns.classes), labels, ids)


def _plain(column: Any) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    array = column.to_numpy(zero_copy_only=False)
    return array.astype(np.str_) if array.dtype == object else array


def _regrouped(pieces: Iterator[Piece], limit: int | None) -> Iterator[Piece]:
    """The same rows in pieces of exactly `limit` (the last may be shorter): readers have block sizes of their own."""
    waiting: list[Piece] = []
    count = 0
    for piece in pieces:
        waiting.append(piece)
        count += len(piece.labels)
        if limit is not None and count >= limit:
            whole = _joined(waiting)
            for start in range(0, count - count % limit, limit):
                yield Piece(*(part if part is None else part[start : start + limit] for part in whole))
            waiting = [Piece(*(part if part is None else part[count - count % limit :] for part in whole))]
            count %= limit
    if count:
        yield _joined(waiting)


def _joined(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    return Piece(*(None if parts[0] is None else np.concatenate(parts) for parts in zip(*pieces)))
