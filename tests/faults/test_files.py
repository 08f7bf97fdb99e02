"""Every file is written whole or not at all, whatever the disk says: one writer, and nothing else writes."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from calgrad import make_calibrator
from calgrad.checks import FileError
from calgrad.files import make_folder, whole_file, write_bytes, write_text
from calgrad.predictions import Predictions
from calgrad.train.checkpoint import load_latest, save_checkpoint

SOURCE = Path(__file__).parents[2] / "src" / "calgrad"


def predictions(value: float = 1.0) -> Predictions:
    return Predictions(torch.tensor([[value, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]), ids=["a", "b"])


def calibrator(path: Path) -> None:
    logits = torch.randn(200, 3)
    make_calibrator("temperature").fit(logits, torch.randint(3, (200,))).save(path)


WRITERS = {
    "bytes": lambda path: write_bytes(path, b"new"),
    "durable": lambda path: write_bytes(path, b"new", durable=True),
    "text": lambda path: write_text(path, "new"),
    "predictions.npz": lambda path: predictions().save(path),
    "predictions.safetensors": lambda path: predictions().save(path),
    "calibrator.json": calibrator,
}


@pytest.fixture
def full_disk(monkeypatch):
    """The disk is full at the moment that counts: when a finished neighbour is to take the name."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", refuse)


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_costs_the_new_file_and_never_the_old_one(name, tmp_path, full_disk):
    path = tmp_path / name
    path.write_bytes(b"old")
    with pytest.raises(
        FileError, match=rf"{re.escape(name)} cannot be written: No space left on device \(.* MiB free\)"
    ):
        WRITERS[name](path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_while_a_checkpoint_is_saved_leaves_the_one_before(tmp_path, request):
    save_checkpoint(tmp_path, 1, {"epoch": 1})
    request.getfixturevalue("full_disk")
    with pytest.raises(FileError, match=r"step-000000002\.pt cannot be written: No space left on device"):
        save_checkpoint(tmp_path, 2, {"epoch": 2})
    assert load_latest(tmp_path, say=pytest.fail)["epoch"] == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_an_error_in_the_block_is_the_error_that_is_raised(tmp_path):
    def half(path: Path) -> None:
        with whole_file(path) as beside:
            beside.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_where_a_folder_should_be_is_a_file(tmp_path):
    (tmp_path / "taken").write_text("")
    for work in (lambda p: make_folder(p), lambda p: write_text(p / "file", "x")):
        with pytest.raises(FileError, match=r"taken.* cannot be written"):
            work(tmp_path / "taken" / "run")


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "file"
    with whole_file(path) as one, whole_file(path) as other:
        one.write_bytes(b"one")
        other.write_bytes(b"other")
        assert one != other
    assert path.read_bytes() == b"one"
    assert np.array_equal(sorted(p.name for p in tmp_path.iterdir()), ["file"])


def test_nothing_else_renames_files_into_place():
    # Downloads keep their .part (they go on from it), and unpacked folders and decoded caches are not single writes.
    known = {"files.py", "data/download.py", "data/memory.py"}
    found = {str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*.py") if "os.replace(" in p.read_text()}
    assert found == known
