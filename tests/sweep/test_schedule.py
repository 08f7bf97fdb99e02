"""The scheduler alone, with an engine that does as it is told."""

from __future__ import annotations

import json

import pytest

from calgrad.checks import InputError
from calgrad.sweep import Run, SweepError
from calgrad.sweep import schedule as module
from calgrad.sweep.board import counts, describe, duration, hours_left
from calgrad.sweep.schedule import Status, raise_failures, schedule
from calgrad.sweep.worker import Outcome
from calgrad.train import Recipe

RECIPE = Recipe(data="digits", model="mlp", epochs=4)


class Script:
    """Each run's outcomes, in order, by seed; counts how many run at once."""

    def __init__(self, outcomes, slots=2):
        self.outcomes = {seed: list(kinds) for seed, kinds in outcomes.items()}
        self.slots, self.active, self.most, self.started, self.closed = slots, [], 0, [], False

    def start(self, run):
        self.active.append(run)
        self.started.append(run.seed)
        self.most = max(self.most, len(self.active))

    def ended(self, seconds):
        if not self.active:
            return []
        run = self.active.pop(0)
        return [(run, Outcome(self.outcomes[run.seed].pop(0), "why\nmore"))]

    def close(self):
        self.closed = True


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "COME_BACK", 0.01)
    return [Run(RECIPE, seed, tmp_path / str(seed)) for seed in (1, 2, 3)]


def test_slots_are_kept_full_and_never_exceeded(runs):
    engine = Script({1: ["done"], 2: ["done"], 3: ["done"]})
    board = schedule(runs, engine)
    assert [status.state for status in board] == ["done"] * 3
    assert engine.most == 2
    assert engine.closed


def test_a_dead_worker_is_tried_again_so_often_and_no_more(runs):
    engine = Script({1: ["died", "died", "done"], 2: ["died"] * 3, 3: ["done"]})
    board = schedule(runs, engine, retries=2)
    assert [(s.state, s.attempts) for s in board] == [("done", 3), ("failed", 3), ("done", 1)]
    with pytest.raises(SweepError, match=r"1 of 3 runs failed(.|\n)*seed 2\): why$"):
        raise_failures(board)


def test_what_would_fail_again_is_not_tried_again(runs):
    engine = Script({1: ["failed"], 2: ["done"], 3: ["done"]})
    assert [s.state for s in schedule(runs, engine, retries=5)] == ["failed", "done", "done"]
    assert engine.started.count(1) == 1


def test_a_busy_run_is_no_attempt(runs):
    engine = Script({1: ["busy"] * 4 + ["done"], 2: ["done"], 3: ["done"]})
    assert [(s.state, s.attempts) for s in schedule(runs, engine, retries=0)] == [("done", 1)] * 3


def test_the_engine_is_closed_on_the_way_out(runs):
    engine = Script({1: ["done"], 2: ["done"], 3: ["done"]})

    def stop(board):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        schedule(runs, engine, watch=stop)
    assert engine.closed


def test_two_runs_in_one_folder_are_refused(runs):
    with pytest.raises(InputError, match="share a folder"):
        schedule([runs[0], runs[0]], Script({}))


def test_the_board_in_words_and_hours(runs, tmp_path):
    board = [Status(runs[0], "running", attempts=2), Status(runs[1]), Status(runs[2], "failed", message="bad\nvery")]
    assert counts(board) == "0 done, 1 running, 1 failed, 1 waiting"
    runs[0].folder.mkdir()
    assert describe(board[0], tmp_path) == ("1", "running", "starting, attempt 2")
    row = {"data": "digits", "model": "mlp", "epochs": 4, "minutes": 60}
    assert hours_left(board, [{**row, "epochs": 8}], slots=1) is None  # another length, another machine: nothing known
    said = {"epoch": 1, "epochs": 4, "seconds_an_epoch": 450}
    (runs[0].folder / "progress.json").write_text(json.dumps(said))
    assert describe(board[0], tmp_path) == ("1", "running", "epoch 1 of 4, attempt 2")
    assert describe(board[2], tmp_path) == ("3", "failed", "bad")
    assert hours_left(board, [], slots=1) == pytest.approx(0.5 * 0.75 + 0.5)
    assert hours_left(board, [row], slots=1) == pytest.approx(0.75 + 1)
    assert hours_left(board, [row], slots=2) == pytest.approx(1.75 / 2)
    assert (duration(0.01), duration(0.5), duration(30)) == ("36 s", "30 min", "30.0 h")
