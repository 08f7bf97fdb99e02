"""What a report is made from: files of predictions, run folders, and folders of runs.

A finished run has predictions for validation and test, so repairs can be fitted on the one and judged on the other. A
run that is still training has a record only and shows its curves. A bare file of logits and labels is enough for
everything but the curves. A run that is half written is named in `problems` and does not stop the others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calgrad.checks import CalgradError, FileError, InputError
from calgrad.predictions import READS, Predictions
from calgrad.train import Record

RECORD = "record.json"


@dataclass(frozen=True)
class Model:
    """One model to report on.

    Attributes:
        name: what the page calls it.
        test: the predictions that judge it.
        val: the predictions that a repair may be fitted on; without them the test set is cross-fitted.
        loss: name and options of the training loss where known; the link needs them.
        folder: the run's folder, where it is a run.
        stamp: changes when the files behind the model change; empty where there are none.
    """

    name: str
    test: Predictions
    val: Predictions | None = None
    loss: tuple[str, dict[str, Any]] | None = None
    folder: Path | None = None
    stamp: str = ""


@dataclass(frozen=True)
class RunState:
    """A run as its record shows it, finished or not."""

    name: str
    folder: Path
    record: Record


@dataclass
class Sources:
    """Everything that was found."""

    models: list[Model] = field(default_factory=list)
    runs: list[RunState] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_sources(
    paths: Sequence[str | Path],
    *,
    val: Sequence[str | Path] = (),
    class_names: Sequence[str] | None = None,
    lenient: bool = False,
) -> Sources:
    """Read files and folders in the order given.

    Args:
        paths: files of predictions, run folders, folders that hold runs somewhere below.
        val: validation predictions for the files among `paths`, in their order: none, or one for each file.
        class_names: names for the classes of files that carry none.
        lenient: note what cannot be read in `problems` instead of raising (for runs in progress).
    """
    found = Sources()
    files = [Path(p) for p in paths if not Path(p).is_dir()]
    if val and len(val) != len(files):
        raise InputError(f"give one --val file for each file of test predictions: got {len(val)} for {len(files)}")
    val_of = dict(zip(files, map(Path, val), strict=False))
    for path in map(Path, paths):
        if not path.is_dir():
            _attempt(found, lenient, _add_file, path, val_of.get(path))
            continue
        folders = run_folders(path)
        if not folders and not lenient:
            raise FileError(
                f"{path} holds no run (a folder with {RECORD}); files of predictions end in {', '.join(READS)}"
            )
        for folder in folders:
            _attempt(found, lenient, _add_run, folder)
    found.models = [_with_class_names(model, class_names) for model in _distinct(found.models)]
    found.runs = _distinct(found.runs)
    return found


def run_folders(path: Path) -> list[Path]:
    """The folders at or below `path` that hold a record."""
    if (path / RECORD).exists():
        return [path]
    return sorted(Path(folder) for folder, _, files in os.walk(path) if RECORD in files)


def _attempt(found: Sources, lenient: bool, add: Any, *arguments: Any) -> None:
    try:
        add(found, *arguments)
    except CalgradError as error:
        if not lenient:
            raise
        found.problems.append(str(error))


def _add_file(found: Sources, path: Path, val: Path | None) -> None:
    test = Predictions.load(path)
    found.models.append(
        Model(path.stem, test, Predictions.load(val) if val else None, _loss_in(test.meta), stamp=_stamp(path, val))
    )


def _add_run(found: Sources, folder: Path) -> None:
    record = Record.load(folder)
    name = run_name(record)
    found.runs.append(RunState(name, folder, record))
    if "test" not in record.files:
        return
    paths = [folder / record.files[split] for split in ("test", "val") if split in record.files]
    stamp = _stamp(*paths, *sorted(folder.glob("gradients-*.npz")))
    test, val = Predictions.load(paths[0]), Predictions.load(paths[1]) if len(paths) > 1 else None
    loss = (record.recipe["loss"], dict(record.recipe.get("loss_options") or {}))
    found.models.append(Model(name, test, val, loss, folder, stamp))


def run_name(record: Record) -> str:
    """`bsce-gra(gamma=4), seed 1`."""
    options = ", ".join(f"{k}={v}" for k, v in (record.recipe.get("loss_options") or {}).items())
    loss = record.recipe.get("loss", "run")
    return f"{loss}({options}), seed {record.seed}" if options else f"{loss}, seed {record.seed}"


def _stamp(*paths: Path | None) -> str:
    found = [(str(path), path.stat()) for path in paths if path is not None]
    return ";".join(f"{name}:{status.st_mtime_ns}:{status.st_size}" for name, status in found)


def _loss_in(meta: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    name, options = meta.get("loss"), meta.get("loss_options", {})
    return (name, options) if isinstance(name, str) and isinstance(options, dict) else None


def _distinct(entries: list[Any]) -> list[Any]:
    """Equal names get their folder's name, or a number."""
    out: list[Any] = []
    names = [entry.name for entry in entries]
    for entry in entries:
        name = entry.name
        if names.count(name) > 1 and entry.folder is not None:
            name = f"{name} ({entry.folder.parent.name}/{entry.folder.name})"
        taken = {other.name for other in out}
        number = 2
        while name in taken:
            name, number = f"{entry.name} ({number})", number + 1
        out.append(entry if name == entry.name else replace(entry, name=name))
    return out


def _with_class_names(model: Model, names: Sequence[str] | None) -> Model:
    if names is None or model.test.class_names is not None:
        return model
    if len(names) != model.test.classes:
        raise InputError(f"{len(names)} class names were given, but {model.name!r} has {model.test.classes} classes")
    return replace(model, test=replace(model.test, meta={**model.test.meta, "class_names": list(names)}))
