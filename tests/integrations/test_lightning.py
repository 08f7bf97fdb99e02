"""Lightning: losses and streaming metrics in a LightningModule, alone and under two processes; the callback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import calgrad
from calgrad.checks import InputError
from calgrad.posthoc import CalibrationWarning, load_calibrator

try:
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    from calgrad.integrations.lightning import CalibrationCallback
except (ImportError, RuntimeError) as error:
    pytest.skip(f"Lightning does not import here: {error}", allow_module_level=True)

from calgrad.metrics.streaming import Accuracy, CalibrationError, NegativeLogLikelihood
from tests.integrations.test_tracking import wandb_wrote

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:lightning", "ignore:.*srun.*:UserWarning")

CLASSES, SCALE = 3, 1.5


class Classifier(pl.LightningModule):
    """A linear net that starts from the truth, but five times as sure of it, and learns slowly: it is over-confident."""

    def __init__(self, loss: str = "bsce-gra", *, sharpness: float = 5.0) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, CLASSES)
        with torch.no_grad():
            self.net.weight.copy_(SCALE * torch.eye(CLASSES, 4))
            self.net.bias.zero_()
        self.sharpness = sharpness
        self.loss = calgrad.make_loss(loss)
        self.metrics = torch.nn.ModuleDict(
            {
                "ece": CalibrationError(inputs="logits"),
                "nll": NegativeLogLikelihood(inputs="logits"),
                "accuracy": Accuracy(inputs="logits"),
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sharpness * self.net(x)

    def training_step(self, batch, _):
        value = self.loss(self(batch[0]), batch[1])
        self.log("train_loss", value)
        return value

    def validation_step(self, batch, _):
        logits, labels = self(batch[0]), batch[1]
        for name, metric in self.metrics.items():
            metric.update(logits, labels)
            self.log(f"val_{name}", metric)
        return {"logits": logits, "labels": labels}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def data(n: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    logits = x[:, :CLASSES] * SCALE
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]
    return TensorDataset(x, labels)


VAL = data(600, 2)


def fit(folder: Path, module: pl.LightningModule, callbacks, *, epochs: int = 2, **options) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    options = {"accelerator": "cpu", "devices": 1, "logger": CSVLogger(folder), **quiet, **options}
    trainer = pl.Trainer(default_root_dir=folder, max_epochs=epochs, callbacks=callbacks, **options)
    trainer.fit(module, DataLoader(data(400, 1), batch_size=50), DataLoader(VAL, batch_size=64))
    return trainer


def logits_of(module: pl.LightningModule) -> torch.Tensor:
    with torch.no_grad():
        return module.cpu().eval()(VAL.tensors[0])


# ---------------------------------------------------------------------------------------------------------- one process


def test_streaming_metrics_and_the_callback(tmp_path):
    torch.manual_seed(0)
    module, callback = Classifier(), CalibrationCallback()
    trainer = fit(tmp_path, module, [callback])
    logits, labels = logits_of(module), VAL.tensors[1]
    expected = calgrad.evaluate(logits=logits, labels=labels)
    for name in ("ece", "nll", "accuracy"):
        assert float(trainer.callback_metrics[f"val_{name}"]) == pytest.approx(getattr(expected, name), abs=1e-6)

    fitted = calgrad.make_calibrator("temperature").fit(logits, labels)
    saved = load_calibrator(callback.file)
    assert callback.file == Path(trainer.log_dir) / "calibrator.json"
    assert saved.parameters["temperature"].item() == pytest.approx(fitted.parameters["temperature"].item(), rel=1e-6)
    values = callback.repair.numbers()
    assert values["ece"] == pytest.approx(expected.ece, abs=1e-6)
    assert saved.parameters["temperature"].item() == pytest.approx(module.sharpness, rel=0.2)
    assert values["ece_calibrated"] < values["ece"] / 2
    assert values["nll_calibrated"] < values["nll"]
    assert (Path(trainer.log_dir) / "calibration" / "reliability-16.png").exists()
    assert "calibration/ece_calibrated" in (Path(trainer.log_dir) / "metrics.csv").read_text()

    state = json.loads(json.dumps(callback.state_dict()))
    other = CalibrationCallback()
    other.load_state_dict(state)
    assert torch.equal(other.calibrator(logits), saved(logits))


def test_tensorboard_has_numbers_and_picture(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    torch.manual_seed(0)
    callback = CalibrationCallback("vector", path=tmp_path / "deep" / "vector.json")
    trainer = fit(tmp_path, Classifier(), [callback], epochs=1, logger=TensorBoardLogger(tmp_path))
    events = EventAccumulator(trainer.log_dir).Reload()
    assert len(events.Images("calibration/reliability")) == 1
    (after,) = events.Scalars("calibration/nll_calibrated")
    assert after.value == pytest.approx(callback.repair.numbers()["nll_calibrated"], rel=1e-5)
    assert load_calibrator(tmp_path / "deep" / "vector.json").method == "vector"


def test_mlflow_has_numbers_and_picture(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from lightning.pytorch.loggers import MLFlowLogger

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    logger = MLFlowLogger(tracking_uri=(tmp_path / "mlruns").as_uri())
    callback = CalibrationCallback(path=tmp_path / "calibrator.json")
    fit(tmp_path, Classifier(), [callback], epochs=1, logger=logger)
    metrics = logger.experiment.get_run(logger.run_id).data.metrics
    assert metrics["calibration/ece_calibrated"] == callback.repair.numbers()["ece_calibrated"]
    stored = logger.experiment.list_artifacts(logger.run_id, "calibration")
    assert [entry.path for entry in stored] == ["calibration/reliability-8.png"]


def test_wandb_has_the_picture(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from lightning.pytorch.loggers import WandbLogger

    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    fit(tmp_path, Classifier(), [CalibrationCallback(path=tmp_path / "calibrator.json")], epochs=1, logger=logger)
    logger.experiment.finish()
    (image,) = tmp_path.rglob("*.png")
    assert image.name.startswith("reliability_")
    assert wandb_wrote(tmp_path, b"calibration/ece_calibrated")


def test_dense_outputs_with_ignored_pixels(tmp_path):
    class Pixels(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.loss = calgrad.make_loss("bsce-gra", ignore_index=255)
            self.metrics = torch.nn.ModuleDict({"ece": CalibrationError(inputs="logits", ignore_index=255)})

        def forward(self, x):
            return super().forward(x).reshape(-1, 2, 5, CLASSES).movedim(-1, 1)

        def training_step(self, batch, _):
            return self.loss(self(batch[0]), self.grid(batch[1]))

        def validation_step(self, batch, _):
            return super().validation_step((batch[0], self.grid(batch[1])), _)

        def grid(self, labels):
            grid = labels.reshape(-1, 2, 5).clone()
            grid[:, 0, 0] = 255
            return grid

    torch.manual_seed(0)
    module, callback = Pixels(), CalibrationCallback(ignore_index=255)
    loaders = DataLoader(data(400, 1), batch_size=50), DataLoader(VAL, batch_size=50)
    options = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    options |= {"accelerator": "cpu", "logger": False, "max_epochs": 1, "callbacks": [callback]}
    trainer = pl.Trainer(default_root_dir=tmp_path, **options)
    trainer.fit(module, *loaders)
    kept = torch.arange(600) % 10 != 0
    rows = module.sharpness * module.net(VAL.tensors[0]).detach()[kept]
    assert len(callback.repair.labels) == 540
    assert float(trainer.callback_metrics["val_ece"]) == pytest.approx(
        calgrad.ece(logits=rows, labels=VAL.tensors[1][kept]), abs=1e-6
    )
    fitted = calgrad.make_calibrator("temperature").fit(rows, VAL.tensors[1][kept])
    assert callback.calibrator.parameters["temperature"].item() == pytest.approx(
        fitted.parameters["temperature"].item(), rel=1e-6
    )
    assert callback.file == tmp_path / "calibrator.json"


def test_a_loss_that_learns_from_validation_is_fed_once_a_validation(tmp_path):
    torch.manual_seed(0)
    module = Classifier("adafocal")
    calls = []
    update = module.loss.update
    module.loss.update = lambda logits, labels: (calls.append(len(labels)), update(logits, labels))
    fit(tmp_path, module, [CalibrationCallback(loss=module.loss)], epochs=2)
    assert calls == [600, 600]
    assert module.loss.uncertainty.gammas.std() > 0


def test_what_would_go_wrong_is_said_in_time(tmp_path):
    class Silent(Classifier):
        def validation_step(self, batch, _):
            super().validation_step(batch, _)

    with pytest.raises(InputError, match="let validation_step return"):
        fit(tmp_path, Silent(), [CalibrationCallback()])
    with pytest.raises(InputError, match="unknown calibrator"):
        CalibrationCallback("temprature")
    with pytest.raises(InputError, match="no validation during"):
        fit(tmp_path, Classifier(), [CalibrationCallback()], limit_val_batches=0)
    with pytest.warns(CalibrationWarning, match="logits of step 16, and the model has gone on to step 24"):
        fit(tmp_path, Classifier(), [CalibrationCallback()], epochs=3, check_val_every_n_epoch=2)


# -------------------------------------------------------------------------------------------------------- two processes


def main(folder: Path) -> None:
    """Run by `test_two_processes` in its own interpreter, which Lightning starts twice."""
    torch.set_num_threads(1)
    pl.seed_everything(0)
    module, callback = Classifier(), CalibrationCallback()
    trainer = fit(folder, module, [callback], devices=2, strategy="ddp")
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    found["temperature"] = callback.calibrator.parameters["temperature"].item()
    found["rows"] = len(callback.repair.labels)
    expected = calgrad.evaluate(logits=logits_of(module), labels=VAL.tensors[1])
    fitted = calgrad.make_calibrator("temperature").fit(logits_of(module), VAL.tensors[1])
    expected = {
        "val_ece": expected.ece,
        "val_nll": expected.nll,
        "temperature": fitted.parameters["temperature"].item(),
    }
    text = json.dumps({"found": found, "expected": expected, "file": str(callback.file), "world": trainer.world_size})
    (folder / f"rank-{trainer.global_rank}.json").write_text(text)


@pytest.mark.slow
def test_two_processes(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(tmp_path)],
        env={**environment, "PYTHONPATH": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first["world"] == second["world"] == 2
    for one in (first, second):
        assert one["found"]["rows"] == 600  # of both processes
        for name, value in one["expected"].items():
            assert one["found"][name] == pytest.approx(value, rel=1e-5), name
    assert first["found"]["temperature"] == pytest.approx(second["found"]["temperature"], rel=1e-9)
    assert load_calibrator(first["file"]).parameters["temperature"].item() == first["found"]["temperature"]
    assert second["file"] == "None"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
