"""Sinks, each with the real tracker: what goes in is read back by the tracker's own reader."""

from __future__ import annotations

import builtins
import csv
import time

import pytest
from matplotlib.figure import Figure

from calgrad.checks import InputError
from calgrad.cli.app import run
from calgrad.integrations.tracking import SINKS, Sink, each_epoch, make_sink
from calgrad.train import Recipe, Record, train

RECIPE = Recipe(data="digits", model="mlp", epochs=2, checkpoint_every=0, eval_every=1)


def picture() -> Figure:
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    return figure


def fill(sink: Sink) -> None:
    sink.log({"val/ece": 0.25, "val/nll": 1.5}, step=1)
    sink.log({"val/ece": 0.125}, step=2)
    sink.figure("reliability/val", picture(), step=2)
    sink.close()


def rows_of(folder) -> list[tuple[int, str, float]]:
    with (folder / "metrics.csv").open() as file:
        return [(int(row["step"]), row["name"], float(row["value"])) for row in csv.DictReader(file)]


def wandb_wrote(folder, text: bytes) -> bool:
    """Whether the run's file has it; wandb's own process may write it a moment after `finish` returned."""
    (path,) = folder.rglob("*.wandb")
    for _ in range(100):
        if text in path.read_bytes():
            return True
        time.sleep(0.1)
    return False


def test_csv(tmp_path):
    fill(make_sink("csv", tmp_path))
    assert rows_of(tmp_path) == [(1, "val/ece", 0.25), (1, "val/nll", 1.5), (2, "val/ece", 0.125)]
    assert (tmp_path / "reliability" / "val-2.png").read_bytes().startswith(b"\x89PNG")
    again = make_sink("csv", tmp_path)  # a resumed run goes on in the same file
    again.log({"val/ece": 0.1}, step=3)
    again.close()
    assert rows_of(tmp_path)[-1] == (3, "val/ece", 0.1)


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fill(make_sink("tensorboard", tmp_path))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("val/ece")] == [(1, 0.25), (2, 0.125)]
    (image,) = events.Images("reliability/val")
    assert image.step == 2
    assert image.encoded_image_string.startswith(b"\x89PNG")


def test_tensorboard_leaves_a_writer_open_that_it_was_given(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        sink = SINKS["tensorboard"](writer=writer)
        sink.log({"a": 1.0}, 1)
        sink.close()
        writer.add_scalar("a", 2.0, 2)
    assert [e.value for e in EventAccumulator(str(tmp_path)).Reload().Scalars("a")] == [1.0, 2.0]


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    fill(make_sink("mlflow", tmp_path, experiment="mine", run_name="first"))
    client = mlflow.MlflowClient(tracking_uri=tmp_path.as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert (found.info.run_name, found.info.status) == ("first", "FINISHED")
    assert found.data.metrics == {"val/ece": 0.125, "val/nll": 1.5}
    assert [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, "val/ece")] == [
        (1, 0.25),
        (2, 0.125),
    ]
    assert [a.path for a in client.list_artifacts(found.info.run_id, "reliability")] == ["reliability/val-2.png"]


def test_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    fill(make_sink("wandb", tmp_path))
    assert wandb_wrote(tmp_path, b"val/ece")
    assert wandb_wrote(tmp_path, b"0.125")
    (image,) = tmp_path.rglob("*.png")
    assert image.name.startswith("val_2_")
    assert "offline-run" in str(image)


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_that_was_never_used_leaves_nothing(name, tmp_path):
    sink = make_sink(name, tmp_path / "unused")
    assert isinstance(sink, Sink)
    sink.close()
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(("name", "module"), [("tensorboard", "tensorboard"), ("mlflow", "mlflow"), ("wandb", "wandb")])
def test_a_missing_package_is_named_with_its_extra(name, module, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(wanted, *args, **kwargs):
        if wanted.split(".")[0] == module or wanted == "torch.utils.tensorboard":
            raise ImportError(f"No module named {wanted!r}")
        return real(wanted, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    sink = make_sink(name, tmp_path)
    with pytest.raises(InputError, match=rf"pip install 'calgrad\[{name}\]'"):
        sink.log({"a": 1.0}, 1)


def test_an_unknown_sink_is_named_with_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"unknown sink 'tensorbord'\. Did you mean 'tensorboard'"):
        make_sink("tensorbord", tmp_path)


def test_a_run_reports_each_epoch(tmp_path):
    sink = make_sink("csv", tmp_path / "track")
    folder = train(RECIPE, 1, folder=tmp_path / "run", quiet=True, on_epoch=each_epoch(sink))
    sink.close()
    seen = {(step, name): value for step, name, value in rows_of(tmp_path / "track")}
    for entry in Record.load(folder).epochs:
        assert seen[entry["epoch"], "val/ece"] == entry["val_ece"]
        assert seen[entry["epoch"], "train_loss"] == entry["train_loss"]
    assert {step for step, _ in seen} == {1, 2}


def test_the_command_line_tracks_a_run(tmp_path, capsys):
    out = tmp_path / "run"
    small = {"epochs": 2, "warmup": 1, "model": "mlp", "model_options": {}, "eval_every": 1}
    settings = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    assert run(["train", "digits", *settings, "-o", str(out), "--track", "csv", "--quiet"]) == 0
    assert {step for step, _, _ in rows_of(out / "csv")} == {1, 2}
    assert run(["train", "digits", *settings, "-o", str(out), "--track", "nosuch", "--quiet"]) != 0
    assert "unknown sink 'nosuch'" in capsys.readouterr().err
