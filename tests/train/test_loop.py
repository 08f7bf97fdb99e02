from __future__ import annotations

import json

import pytest
import torch

from calgrad.checks import InputError
from calgrad.predictions import Predictions
from calgrad.train import DivergedError, Record, default_folder, train
from calgrad.train.checkpoint import list_checkpoints
from calgrad.train.weights import load_model


def test_a_run_folder_holds_what_it_says(tiny, tmp_path):
    recipe = tiny.replace(eval_every=2, gradient_epochs=[1, 3])
    folder = train(recipe, 5, folder=tmp_path / "run", quiet=True)
    record = Record.load(folder)
    assert (record.status, record.seed, record.fingerprint) == ("finished", 5, recipe.fingerprint())
    assert record.recipe == recipe.to_dict()
    assert {"calgrad", "torch", "python"} <= record.versions.keys()
    assert record.device["type"] == "cpu"
    assert record.timings["total"] >= record.timings["train"] > 0
    assert record.timings["images"] == 3 * 1000
    assert [entry["epoch"] for entry in record.epochs] == [1, 2, 3]
    assert ["val_ece" in entry for entry in record.epochs] == [False, True, True]  # every second, and the last
    assert record.epochs[2]["train_loss"] < record.epochs[0]["train_loss"]
    assert record.epochs[0]["lr"] == pytest.approx(0.1)
    assert set(record.files) == {"val", "test", "weights", "gradients_1", "gradients_3", "test_1", "test_3"}
    assert all((folder / name).is_file() for name in record.files.values())
    assert len(list_checkpoints(folder / "checkpoints")) == 2
    assert not list(folder.rglob("*.tmp"))


def test_predictions_are_in_order_with_ids_and_provenance(tiny, tmp_path):
    from calgrad.data import load_data

    folder = train(tiny.replace(epochs=10), 5, folder=tmp_path / "run", quiet=True)
    test = Predictions.load(folder / "predictions-test.npz")
    part = load_data("digits").test
    assert test.ids.tolist() == part.ids.tolist()
    assert torch.equal(test.labels, part.labels)
    assert test.split == "test"
    assert (test.meta["loss"], test.meta["seed"], test.meta["data"]) == ("ce", 5, "digits")
    assert test.class_names == tuple("0123456789")
    accuracy = float((test.prediction == test.labels).double().mean())
    assert accuracy > 0.5
    val = Predictions.load(folder / "predictions-val.npz")
    assert Record.load(folder).epochs[-1]["val_accuracy"] == pytest.approx(
        float((val.prediction == val.labels).double().mean())
    )


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(tiny, tmp_path):
    first, again, other = (
        load_model(train(tiny, seed, folder=tmp_path / name, quiet=True)).model.state_dict()
        for seed, name in ((1, "a"), (1, "b"), (2, "c"))
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_training_leaves_the_callers_random_numbers_alone(tiny, tmp_path):
    before = torch.get_rng_state()
    train(tiny, 1, folder=tmp_path / "run", quiet=True)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_finished_run_is_not_run_again_unless_asked(tiny, tmp_path):
    seen: list[int] = []
    options = {"folder": tmp_path / "run", "quiet": True, "on_epoch": lambda entry: seen.append(entry["epoch"])}
    train(tiny, 1, **options)
    train(tiny, 1, **options)
    assert seen == [1, 2, 3]
    train(tiny, 1, overwrite=True, **options)
    assert seen == [1, 2, 3] * 2


def test_a_folder_of_another_recipe_or_seed_is_refused(tiny, tmp_path):
    train(tiny, 1, folder=tmp_path / "run", quiet=True)
    with pytest.raises(InputError, match=r"holds a run of another recipe or seed \(lr: 0\.1 there, 0\.2 here\)"):
        train(tiny.replace(lr=0.2), 1, folder=tmp_path / "run", quiet=True)
    with pytest.raises(InputError, match="seed: 1 there, 2 here"):
        train(tiny, 2, folder=tmp_path / "run", quiet=True)
    renamed = tiny.replace(name="other", checkpoint_every=2)
    assert train(renamed, 1, folder=tmp_path / "run", quiet=True) == tmp_path / "run"


def test_overwriting_removes_only_what_runs_write(tiny, tmp_path):
    folder = train(tiny.replace(gradient_epochs=[1]), 1, folder=tmp_path / "run", quiet=True)
    (folder / "notes.txt").write_text("mine")
    train(tiny.replace(lr=0.2), 1, folder=folder, overwrite=True, quiet=True)
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / "gradients-epoch-001.npz").exists()
    assert Record.load(folder).recipe["lr"] == 0.2


def test_a_diverged_loss_names_epoch_rate_and_last_good_checkpoint(tiny, tmp_path):
    # No weight decay and a rate that overflows float32 within the second epoch, not the first.
    recipe = tiny.replace(schedule="steps", milestones=[1], lr_drop=1e30, lr=0.05)
    with pytest.raises(
        DivergedError, match=r"in epoch 2 at learning rate 5e\+28; the last good checkpoint is .*step-000000004"
    ):
        train(recipe, 1, folder=tmp_path / "run", quiet=True)
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["status"] == "diverged"
    assert [entry["epoch"] for entry in record["epochs"]] == [1]


def test_a_run_that_diverges_at_once_says_there_is_no_checkpoint(tiny, tmp_path):
    with pytest.raises(DivergedError, match=r"in epoch 1 .* there was no checkpoint yet; lower the learning rate"):
        train(tiny.replace(lr=1e30, schedule="constant"), 1, folder=tmp_path / "run", quiet=True)


def test_evaluation_is_a_callback(tiny, tmp_path):
    sizes: list[int] = []

    def count(predictions: Predictions) -> dict[str, float]:
        sizes.append(predictions.n)
        return {"samples": predictions.n}

    folder = train(tiny, 1, folder=tmp_path / "run", evaluate=count, quiet=True)
    assert sizes == [257] * 3
    assert Record.load(folder).epochs[0]["val_samples"] == 257


def test_losses_that_learn_from_validation_are_fed(tiny, tmp_path):
    from calgrad.losses import make_loss
    from calgrad.train.checkpoint import load_latest

    folder = train(tiny.replace(loss="adafocal", epochs=4), 1, folder=tmp_path / "run", quiet=True)
    tensors = load_latest(folder / "checkpoints", say=print)["tensors"]
    fresh = make_loss("adafocal").state_dict()
    moved = [name for name, value in fresh.items() if not torch.equal(tensors[f"loss.{name}"], value)]
    assert moved  # gammas and edges have left their start


@pytest.mark.parametrize("loss", ["consistency-gra", "mmce", "soft-ece", "brier"])
def test_every_kind_of_loss_trains(tiny, tmp_path, loss):
    folder = train(tiny.replace(loss=loss, epochs=8, batch=100), 1, folder=tmp_path / "run", quiet=True)
    record = Record.load(folder)
    assert record.epochs[-1]["val_accuracy"] > 0.5


def test_the_average_is_what_is_saved_and_judged(tiny, tmp_path):
    plain, averaged = (
        load_model(train(recipe, 1, folder=tmp_path / name, quiet=True)).model.state_dict()
        for recipe, name in ((tiny, "a"), (tiny.replace(ema=0.9), "b"))
    )
    from calgrad.train.checkpoint import load_latest

    kept = load_latest(tmp_path / "b" / "checkpoints", say=print)["tensors"]
    assert not torch.equal(plain["head.weight"], averaged["head.weight"])
    assert torch.equal(kept["model.head.weight"], plain["head.weight"])  # averaging does not touch the training itself
    shapes = [t for name, t in kept.items() if name.startswith("ema.") and t.shape == plain["head.weight"].shape]
    assert torch.equal(shapes[0], averaged["head.weight"])


def test_mixup_and_bf16_train(tiny, tmp_path):
    folder = train(tiny.replace(mixup=0.2, precision="bf16", epochs=4), 1, folder=tmp_path / "run", quiet=True)
    assert Record.load(folder).epochs[-1]["val_accuracy"] > 0.5


def test_where_runs_go_by_default(tiny):
    recipe = tiny.replace(loss="bsce-gra", loss_options={"gamma": 4, "beta": 2})
    assert str(default_folder(recipe, 7)) == "runs/tiny/bsce-gra-beta2-gamma4/seed-7"
    assert str(default_folder(tiny.replace(name=""), 1)) == "runs/digits-mlp/ce/seed-1"


def test_tensorboard_without_the_extra_says_what_to_install(tiny, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'calgrad\[tensorboard\]'"):
        train(tiny, 1, folder=tmp_path / "run", tensorboard=True, quiet=True)


def test_tensorboard_gets_every_number_of_an_epoch(tiny, tmp_path, monkeypatch):
    import sys
    import types

    written: list[tuple] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def add_scalar(self, *what) -> None:
            written.append(what)

        def flush(self) -> None:
            pass

    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    train(tiny, 1, folder=tmp_path / "run", tensorboard=True, quiet=True)
    names = {name for name, _, _ in written}
    assert {"train_loss", "lr", "val/accuracy", "val/nll", "val/ece"} <= names
    assert {step for _, _, step in written} == {1, 2, 3}
