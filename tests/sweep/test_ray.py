"""A real Ray cluster of two nodes: whatever is killed, every run finishes once, with the local engine's bits."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from calgrad.predictions import Predictions
from calgrad.sweep.grid import Grid
from calgrad.sweep.ledger import Ledger
from calgrad.sweep.worker import read_progress
from calgrad.train import Record
from tests.sweep.cluster import Cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra: pip install 'calgrad[ray]'"),
]

EPOCHS = 12
GRID = {
    "recipe": "digits",
    "set": {"epochs": EPOCHS, "warmup": 2, "eval_every": 1, "checkpoint_every": 1},
    "losses": ["ce", "bsce-gra:gamma=2"],
    "seeds": [1, 2],
}
COMMAND = [sys.executable, "-m", "calgrad", "sweep", "--recipe", "digits", "--losses", "ce,bsce-gra:gamma=2"]
COMMAND += ["--seeds", "1,2", "--device", "cpu", "--cpus-per-run", "1"]
COMMAND += [word for key, value in GRID["set"].items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The same grid by the local engine, nothing disturbed."""
    folder = tmp_path_factory.mktemp("local")
    subprocess.run([*COMMAND, "-o", folder, "--engine", "local", "--jobs", "2"], check=True, timeout=240)
    return folder


@pytest.fixture(scope="module")
def cluster():
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as scratch,
        Cluster(Path(scratch)) as made,
    ):
        yield made


def start(cluster, folder):
    words = ["-o", folder, "--engine", "ray", "--address", cluster.address]
    log = open(folder.with_suffix(".log"), "ab")  # noqa: SIM115 - the driver's
    return subprocess.Popen([*COMMAND, *words], env=cluster.environment, stderr=log, start_new_session=True)


def finish(driver, folder):
    assert driver.wait(timeout=240) == 0, folder.with_suffix(".log").read_text()


def wait_for_a_run(folder, *, of=None):
    """The folder and process of a run that is in its middle; `of`: only one that these processes make."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for path in folder.rglob("progress.json"):
            said = read_progress(path.parent)
            if said and 2 <= said["epoch"] <= EPOCHS - 4 and (of is None or said["pid"] in of()):
                return path.parent, said["pid"]
        time.sleep(0.02)
    raise AssertionError(folder.with_suffix(".log").read_text())


def check(folder, expected):
    """Every run finished, once, with the expected bits; a row each."""
    runs = Grid.from_dict(GRID).runs(folder)
    names = [str(run.folder.relative_to(folder)) for run in runs]
    assert len(names) == 4
    for name in names:
        ours, theirs = Record.load(folder / name), Record.load(expected / name)
        assert ours.status == "finished"
        assert [entry["epoch"] for entry in ours.epochs] == list(range(1, EPOCHS + 1))
        assert without_time(ours.epochs) == without_time(theirs.epochs)
        weights = [(place / name / "weights.safetensors").read_bytes() for place in (folder, expected)]
        assert weights[0] == weights[1]
        for split in ("val", "test"):
            a, b = (Predictions.load(place / name / f"predictions-{split}.npz") for place in (folder, expected))
            assert np.array_equal(a.logits.numpy(), b.logits.numpy())
    table = (folder / "results.csv").read_text().splitlines()
    assert sorted(line.rpartition(",")[2] for line in table[1:]) == sorted(names)
    measured = ("loss", "seed", "accuracy", "ece", "nll", "val_nll")
    ours, theirs = ([{k: row[k] for k in measured} for row in Ledger(place).rows()] for place in (folder, expected))
    assert ours == theirs
    done = Counter(event["run"] for event in Ledger(folder).events() if event["event"] == "done")
    assert set(done) <= set(names)
    assert set(done.values()) == {1}


def without_time(epochs):
    return [{k: v for k, v in entry.items() if k != "seconds"} for entry in epochs]


def deaths(folder):
    return [event for event in Ledger(folder).events() if event["event"] == "died"]


def test_a_worker_killed_in_the_middle_of_a_run(cluster, expected, tmp_path):
    folder = tmp_path / "sweep"
    driver = start(cluster, folder)
    killed, pid = wait_for_a_run(folder)
    os.kill(pid, signal.SIGKILL)
    finish(driver, folder)
    assert [event["run"] for event in deaths(folder)] == [str(killed.relative_to(folder))]
    check(folder, expected)
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file() and p.parent != folder}
    finish(start(cluster, folder), folder)  # the same command again finds everything done
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file() and p.parent != folder} == before
    check(folder, expected)


def test_a_node_that_goes_away(cluster, expected, tmp_path):
    folder = tmp_path / "sweep"
    node = cluster.add_node(cpus=1)
    driver = start(cluster, folder)
    lost, _ = wait_for_a_run(folder, of=lambda: cluster._members(node))
    cluster.kill_node(node)
    finish(driver, folder)
    assert str(lost.relative_to(folder)) in [event["run"] for event in deaths(folder)]
    check(folder, expected)


def test_the_driver_killed_and_started_again(cluster, expected, tmp_path):
    folder = tmp_path / "sweep"
    cluster.add_node(cpus=1)
    driver = start(cluster, folder)
    wait_for_a_run(folder)
    driver.kill()
    driver.wait()
    assert any(Record.load(path.parent).status != "finished" for path in folder.rglob("record.json"))
    finish(start(cluster, folder), folder)
    check(folder, expected)


def test_two_drivers_at_once(cluster, expected, tmp_path):
    folder = tmp_path / "sweep"
    drivers = [start(cluster, folder) for _ in range(2)]
    for driver in drivers:
        finish(driver, folder)
    check(folder, expected)


def test_no_cluster_is_an_error_in_words(tmp_path):
    words = ["-o", tmp_path, "--engine", "ray", "--address", "127.0.0.1:1"]
    environment = {**os.environ, "RAY_gcs_rpc_server_connect_timeout_s": "1", "RAY_NUM_REDIS_GET_RETRIES": "1"}
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 1
    assert "no Ray cluster at '127.0.0.1:1'" in done.stderr
    assert "ray start --head" in done.stderr
