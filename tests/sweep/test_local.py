"""Many runs on one machine: side by side gives the same bits, and one failure does not take the others with it."""

from __future__ import annotations

import pytest

from calgrad.recipes import load_recipe
from calgrad.sweep import Run, SweepError, run_all
from calgrad.train import Record

QUICK = load_recipe("digits").replace(
    model="mlp", model_options={}, epochs=2, warmup=0, checkpoint_every=0, eval_every=2
)


def runs_in(folder, recipe=QUICK):
    return [Run(recipe, seed, folder / f"seed{seed}") for seed in (1, 2)]


def test_side_by_side_equals_one_after_the_other(tmp_path):
    done = []
    run_all(runs_in(tmp_path / "one"), jobs=1, on_done=done.append)
    run_all(runs_in(tmp_path / "two"), jobs=2, on_done=done.append)
    assert len(done) == 4
    for seed in ("seed1", "seed2"):
        weights = [(tmp_path / way / seed / "weights.safetensors").read_bytes() for way in ("one", "two")]
        assert weights[0] == weights[1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_is_named_and_the_others_finish(tmp_path, jobs):
    diverging = Run(QUICK.replace(lr=1e30), 1, tmp_path / "diverging")
    good = runs_in(tmp_path)
    with pytest.raises(SweepError, match=r"1 of 3 runs failed(.|\n)*diverging"):
        run_all([diverging, *good], jobs=jobs)
    assert all(Record.load(run.folder).status == "finished" for run in good)


def test_finished_runs_are_left_alone(tmp_path):
    run_all(runs_in(tmp_path), jobs=1)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    run_all(runs_in(tmp_path), jobs=1)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before
