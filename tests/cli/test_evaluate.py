"""`calgrad evaluate`: the numbers of the library, one file or several, whole or in a stream."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from calgrad.cli import evaluate as command
from calgrad.cli.app import run
from calgrad.cli.inputs import resolve
from calgrad.metrics import compare_models, evaluate
from calgrad.predictions import Predictions


@pytest.fixture
def example() -> Predictions:
    return Predictions.load(resolve("example"))


def test_the_shipped_example_is_what_it_says(example):
    val = Predictions.load(resolve("example-val"))
    assert (example.n, val.n, example.split, val.split) == (997, 500, "test", "val")
    assert "make_example.py" in example.meta["made_by"]
    assert not set(example.ids) & set(val.ids)
    from sklearn.datasets import load_digits

    assert torch.equal(example.labels, torch.tensor(load_digits().target[example.ids]))


def test_json_is_the_evaluation(capsys, example):
    assert run(["evaluate", "example", "--json", "--bins", "10", "--bootstrap", "200", "--seed", "3"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    expected = json.loads(evaluate(example, bins=10, bootstrap=200, seed=3).to_json())
    assert found.pop("file").endswith("example-test.npz")
    assert found.pop("split") == "test"
    assert found == expected
    assert printed.err == ""


def test_a_table_for_people(capsys, example):
    assert run(["evaluate", "example"]) == 0
    shown = capsys.readouterr().out
    assert shown == f"example-test.npz: {evaluate(example)}\n"
    assert "5.86 %" in shown


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "csv", "parquet"])
def test_every_format_in_a_stream(tmp_path, capsys, example, suffix):
    path = tmp_path / f"p.{suffix}"
    if suffix in ("npz", "safetensors"):
        example.save(path)
    else:
        columns = {"label": example.labels.numpy(), "id": example.ids}
        columns |= {f"logit_{k}": example.logits[:, k].double().numpy() for k in range(10)}
        if suffix == "csv":
            rows = zip(*(column.tolist() for column in columns.values()))
            path.write_text("\n".join([",".join(columns), *(",".join(map(repr, row)) for row in rows)]))
        else:
            pytest.importorskip("pyarrow.parquet").write_table(pytest.importorskip("pyarrow").table(columns), path)
    assert run(["evaluate", str(path), "--json", "--stream", "--bootstrap", "0"]) == 0
    streamed = json.loads(capsys.readouterr().out)
    assert run(["evaluate", str(path), "--json", "--no-stream", "--bootstrap", "0"]) == 0
    whole = json.loads(capsys.readouterr().out)
    bounds = streamed["approximate"]
    assert set(bounds) == {"adaptive_ece", "aurc"}
    for name in ("accuracy", "nll", "brier", "ece", "classwise_ece", "smooth_ece", "adaptive_ece", "aurc", "p_value"):
        assert streamed[name] == pytest.approx(whole[name], abs=1e-7 + bounds.get(name, 0)), name


def test_a_file_larger_than_memory_is_streamed_without_asking(monkeypatch, capsys):
    monkeypatch.setattr("calgrad.files.memory", lambda: 1000.0)
    assert run(["evaluate", "example", "--json", "--bootstrap", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["approximate"]
    assert run(["evaluate", "example", "--json", "--bootstrap", "0", "--no-stream"]) == 0
    assert not json.loads(capsys.readouterr().out)["approximate"]


def test_two_files_are_compared_on_their_pairs_whatever_their_order(tmp_path, capsys, example):
    cooler = example.with_logits(example.logits / 3)
    order = np.random.default_rng(0).permutation(example.n)
    cooler.select(order).save(tmp_path / "cool.safetensors")
    assert run(["evaluate", "example", str(tmp_path / "cool.safetensors"), "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert [row["n"] for row in found["files"]] == [997, 997]
    (pair,) = found["comparisons"]
    expected = compare_models(example, cooler)
    assert pair["nll"]["difference"] == pytest.approx(expected.nll.difference, abs=1e-9)
    assert pair["ece"]["difference"] == pytest.approx(expected.ece.difference, abs=1e-9)
    assert pair["nll"]["p_value"] < 0.01
    assert run(["evaluate", "example", str(tmp_path / "cool.safetensors")]) == 0
    shown = capsys.readouterr().out
    assert "Two models on the same 997 samples" in shown
    assert "cool.safetensors" in shown


def test_files_of_other_samples_are_not_paired(capsys):
    assert run(["evaluate", "example-val", "example-test", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["comparisons"] == []
    assert "do not hold the same samples" in printed.err


def test_same_samples_by_ids_and_labels(example):
    part = example.select(slice(0, 50))
    turned = part.select(torch.arange(49, -1, -1))
    assert command.same_samples(part, turned).ids.tolist() == part.ids.tolist()
    assert torch.equal(command.same_samples(part, turned).logits, part.logits)
    assert command.same_samples(part, example.select(slice(1, 51))) is None
    assert command.same_samples(part, example.select(slice(0, 49))) is None
    plain = Predictions(part.logits, part.labels)
    assert command.same_samples(part, plain) is plain
    assert command.same_samples(part, Predictions(part.logits, (part.labels + 1) % 10)) is None


def test_bad_numbers_in_a_file_are_errors(tmp_path, capsys):
    logits = np.zeros((5, 3), dtype=np.float32)
    logits[2, 1] = np.nan
    np.savez(tmp_path / "p.npz", logits=logits, labels=np.zeros(5, dtype=int))
    for flag in ("--stream", "--no-stream"):
        assert run(["evaluate", str(tmp_path / "p.npz"), flag, "--json"]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "p.npz: `logits` must be finite, got 1 NaN or infinite values" in printed.err
        assert "row 2, class 1" in printed.err


def test_an_infinite_number_is_null_in_json():
    from calgrad.cli.output import _finite

    assert _finite({"a": [1.0, float("inf")], "b": (float("nan"), "x")}) == {"a": [1.0, None], "b": [None, "x"]}


def test_the_progress_bar_goes_to_stderr(monkeypatch, capsys):
    from calgrad.cli.output import progress

    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress("reading", 10) as advance:
        advance(10)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "10/10" in printed.err
