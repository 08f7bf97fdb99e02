"""One row a run, whoever writes and how often."""

from __future__ import annotations

import csv
import json
import multiprocessing

import pytest

from calgrad.metrics import ece
from calgrad.predictions import Predictions
from calgrad.sweep.ledger import Ledger, speeds
from calgrad.train import Recipe, train

RECIPE = Recipe(data="digits", model="mlp", name="tiny", epochs=1, checkpoint_every=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    for seed in (1, 2):
        train(RECIPE, seed, folder=folder / f"seed-{seed}", quiet=True)
    (folder / "unfinished").mkdir()
    record = json.loads((folder / "seed-1" / "record.json").read_text())
    (folder / "unfinished" / "record.json").write_text(json.dumps({**record, "status": "running"}))
    return folder


def read(ledger):
    with ledger.table.open() as file:
        return list(csv.DictReader(file))


def test_finished_runs_and_no_others_have_a_row(folder):
    ledger = Ledger(folder)
    ledger.save()
    rows = read(ledger)
    assert [(row["seed"], row["folder"]) for row in rows] == [("1", "seed-1"), ("2", "seed-2")]
    test = Predictions.load(folder / "seed-1" / "predictions-test.npz")
    assert float(rows[0]["ece"]) == pytest.approx(ece(logits=test.logits, labels=test.labels), rel=1e-5)
    assert rows[0]["samples"] == str(test.n)
    assert speeds(ledger.rows())[0].images_per_second > 0


def test_a_kept_row_is_believed_only_while_it_is_the_records(folder):
    ledger = Ledger(folder)
    right = ledger.rows()
    path = folder / "seed-1" / "row.json"
    kept = json.loads(path.read_text())
    kept["row"]["ece"] = 0.5
    path.write_text(json.dumps(kept))
    assert ledger.rows()[0]["ece"] == 0.5  # not measured again
    for damage in (json.dumps({**kept, "of": ["another", 1]}), "{", "[]"):
        path.write_text(damage)
        assert ledger.rows() == right


def write_often(folder, who):
    ledger = Ledger(folder)
    for i in range(40):
        ledger.note("done", folder / f"{who}-{i}", message="x" * 3000)
        if i % 10 == 0:
            ledger.save()


def test_two_writers_lose_and_double_nothing(folder):
    before = Ledger(folder).events()
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_often, args=(folder, who)) for who in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    ledger = Ledger(folder)
    names = [event["run"] for event in ledger.events()[len(before) :]]
    assert sorted(names) == sorted(f"{who}-{i}" for who in "ab" for i in range(40))
    assert [row["folder"] for row in read(ledger)] == ["seed-1", "seed-2"]


def test_the_run_is_known_by_what_it_is(folder):
    row = Ledger(folder).rows()[0]
    assert (row["data"], row["model"], row["loss"], row["recipe"], row["epochs"]) == ("digits", "mlp", "ce", "tiny", 1)
