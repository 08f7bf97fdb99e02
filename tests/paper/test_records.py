from __future__ import annotations

import json
import math
import shutil

import pytest

from calgrad.checks import FileError, InputError
from calgrad.metrics import adaptive_ece, ece, nll
from calgrad.paper.collect import collect
from calgrad.paper.published import read_published
from calgrad.paper.records import RunRow, pool_rows, read_rows, row_of_run
from calgrad.paper.runs import RunId, find_runs
from calgrad.paper.tables import NO_RUN, SPECS, backing, build_table
from calgrad.paper.traces import one_setting, trace_rows
from calgrad.posthoc import make_calibrator
from calgrad.predictions import Predictions
from calgrad.sweep.identity import options_text


def made_up(loss="bsce-gra", seed=1, epochs=350, value=0.01, **changes) -> RunRow:
    run = RunId(
        "cifar10", "resnet50", loss, "beta=2;gamma=4" if "bsce" in loss else "", "cifar10-paper", epochs, "abc", seed
    )
    names = ("accuracy", "ece", "ada_ece", "classwise_ece", "nll", "brier")
    values = {f"{n}{view}": value for n in names for view in ("", "_after_T")}
    values |= {f"{n}{view}_se": 0.001 for n in names for view in ("", "_after_T")}
    values |= {"temperature": 1.1, "minutes": 16.0, "images_per_second": 17_000.0, **changes}
    return RunRow(run, 10_000, values, "H200", "torch 2.11", "2026-01-01", "abc")


def test_a_row_says_what_the_metrics_say(digit_runs):
    folder = digit_runs / "bsce-gra-gamma2-beta2" / "seed-1"
    row = row_of_run(folder)
    test, val = (Predictions.load(folder / f"predictions-{split}.npz") for split in ("test", "val"))
    assert row.values["ece"] == pytest.approx(ece(logits=test.logits, labels=test.labels))
    assert row.values["nll"] == pytest.approx(nll(logits=test.logits, labels=test.labels))
    fitted = make_calibrator("temperature-ece").fit(val.logits, val.labels)
    assert row.values["temperature"] == pytest.approx(fitted.temperature)
    after = adaptive_ece(fitted(test.logits), test.labels)
    assert row.values["ada_ece_after_T"] == pytest.approx(after, abs=1e-6)
    assert 0 < row.values["ece_se"] < 0.05
    assert 0 < row.values["floor"] < 0.05
    assert (row.run.loss, row.run.options, row.run.seed, row.run.epochs) == ("bsce-gra", "beta=2;gamma=2", 1, 4)
    assert row.samples == 540


def test_collected_rows_are_the_runs_rows(digit_runs, tmp_path):
    written, left_out = collect([digit_runs], tmp_path / "digits.csv")
    assert [p.name for p in written] == [f"digits.{k}.csv" for k in ("runs", "epochs", "gradients", "confidence")]
    assert left_out == []
    from_folders = sorted(read_rows([digit_runs]), key=lambda r: r.run)
    from_file = sorted(read_rows([tmp_path]), key=lambda r: r.run)
    assert [r.run for r in from_file] == [r.run for r in from_folders]
    for a, b in zip(from_file, from_folders, strict=True):
        assert a.values == pytest.approx(b.values, rel=1e-5, nan_ok=True)
    # Both places together: every run once. Collected again: the same file.
    assert len(read_rows([tmp_path, digit_runs])) == len(from_file)
    before = (tmp_path / "digits.runs.csv").read_text()
    collect([digit_runs / "ce"], tmp_path / "digits")
    assert (tmp_path / "digits.runs.csv").read_text() == before


def test_traces_from_folders_and_files_agree(digit_runs, tmp_path):
    collect([digit_runs], tmp_path / "digits")
    for kind, least in (("epochs", 7 * 4), ("gradients", 7 * 2 * 10), ("confidence", 7 * 20)):
        live, read = (
            sorted(trace_rows([place], kind), key=lambda r: [str(v) for v in r.values()])
            for place in (digit_runs, tmp_path)
        )
        assert len(live) == len(read) >= least
    rows = trace_rows([tmp_path], "confidence")
    by_run = {}
    for row in rows:
        by_run.setdefault(RunId.of_row(row), []).append(row["correct"] + row["wrong"])
    assert {sum(counts) for counts in by_run.values()} == {2 * 540}  # at two epochs
    gradients = [r for r in trace_rows([tmp_path], "gradients") if r["part"] == "density"]
    assert sum(r["count"] for r in gradients) == 7 * 2 * 1000


def test_settings_keep_recipes_apart(digit_runs):
    rows = trace_rows([digit_runs], "epochs")
    other = [{**row, "settings": "other", "epochs": 9, "recipe": "longer"} for row in rows]
    assert {r["recipe"] for r in one_setting([*rows, *other])} == {"longer"}
    assert {r["recipe"] for r in one_setting([*rows, *other], recipe="digits-tiny")} == {"digits-tiny"}
    with pytest.raises(InputError, match="no run of cifar10/resnet50"):
        one_setting(rows, cell="cifar10/resnet50")


def test_unfinished_and_foreign_files(digit_runs, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(digit_runs / "ce" / "seed-1", copy)
    record = json.loads((copy / "record.json").read_text())
    (copy / "record.json").write_text(json.dumps({**record, "status": "interrupted"}))
    with pytest.raises(FileError, match="not a finished run"):
        row_of_run(copy)
    assert read_rows([tmp_path]) == []
    with pytest.raises(InputError, match="no finished run"):
        collect([tmp_path], tmp_path / "out")
    with pytest.raises(FileError, match="does not exist"):
        find_runs([tmp_path / "nowhere"])
    (tmp_path / "x.runs.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FileError, match="lacks the columns"):
        read_rows([tmp_path])


def test_options_are_written_out():
    assert options_text("bsce-gra", {"gamma": 3}).split(";")[1] == "gamma=3"
    assert options_text("ce", {}) == ""
    assert options_text("focal", {}) == options_text("focal", {"gamma": 3})


def test_pooling_adds_both_kinds_of_noise():
    rows = [made_up(seed=s, value=v, ece_se=0.002) for s, v in ((1, 0.01), (42, 0.02), (71, 0.03))]
    pooled = pool_rows(rows, "ece")
    assert pooled.value == pytest.approx(0.02)
    by_seed, by_sample = 0.01**2 / 3, 0.002**2
    total = by_seed + by_sample
    freedom = total**2 / (by_seed**2 / 2 + by_sample**2 / 9999)
    from scipy.stats import t

    half = t.ppf(0.975, freedom) * math.sqrt(total)
    assert pooled.high == pytest.approx(0.02 + half, rel=1e-6)
    single = pool_rows(rows[:1], "ece")
    assert single.high - single.value == pytest.approx(1.96 * 0.002, rel=1e-2)


def test_tables_fill_what_runs_back_and_invent_nothing():
    rows = [made_up(seed=1, value=0.0098), made_up(seed=42, value=0.0102), made_up(seed=1, epochs=25, value=0.05)]
    table = build_table("table-ece", rows, cells=["cifar10/resnet50"])
    ((title, lines),) = table.sections
    assert title == "cifar10, resnet50: ECE"
    texts = [[cell.text for cell in line] for line in lines]
    assert len(texts) == 8  # seven losses, BSCE-GRA in two lengths
    assert [t[2] for t in texts[:6]] == [NO_RUN] * 6
    full, short = texts[6:]
    assert full[0] == "BSCE-GRA"
    assert full[1] == "0.74"
    assert full[2].startswith("1.00 [")
    assert full[6] == "2"
    assert "350 epochs" in full[7]
    assert short[2].startswith("5.00 [")
    assert "25 of 350 epochs" in short[7]
    found = backing(read_published("ece"), rows)
    assert (found.full, found.short, found.total) == (1, 0, 63)
    assert backing(read_published("ece"), rows[2:]).short == 1


@pytest.mark.parametrize("name", list(SPECS))
def test_every_table_in_every_dress(name):
    table = build_table(name, [])
    published = read_published(SPECS[name].published)
    assert sum(len(lines) for _, lines in table.sections) == len(
        {(c.data, c.model, c.metric, c.loss, c.options) for c in published}
    )
    for text in (table.to_markdown(), table.to_latex(), table.to_csv()):
        assert all(c.text in text for c in published)
        assert NO_RUN in text


def test_losses_beyond_the_paper_get_a_line():
    table = build_table("table-ece", [made_up(loss="label-smoothing")], cells=["cifar10/resnet50"])
    last = [cell.text for cell in table.sections[0][1][-1]]
    assert last[0] == "label-smoothing"
    assert last[1] == "–"


def test_unknown_cells_are_refused():
    with pytest.raises(InputError, match="no cell 'cifar10/resnet18'"):
        build_table("table-ece", [], cells=["cifar10/resnet18"])
