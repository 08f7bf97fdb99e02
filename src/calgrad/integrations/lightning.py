"""Lightning: a callback that fits a post-hoc map on the validation logits at the end of `fit`.

Losses and streaming metrics need nothing from here: they are modules, and go into a `LightningModule` as any other.
The callback needs the logits, so `validation_step` returns them:

    def validation_step(self, batch, _):
        logits = self(batch[0])
        self.error.update(logits, batch[1]); self.log("val_ece", self.error)
        return {"logits": logits, "labels": batch[1]}

Under several processes the rows of all of them are brought together, and each process ends with the same map. A
`DistributedSampler` repeats a few samples where their number is not divisible by that of the processes, and the map sees
those twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from calgrad.checks import InputError, unknown_name
from calgrad.integrations.tracking import CSVSink, MLflowSink, Sink, TensorBoardSink, WandbSink
from calgrad.integrations.validation import FIT_ELEMENTS, Repair, RowSample, repair
from calgrad.posthoc import CALIBRATORS, CalibrationWarning, Calibrator, make_calibrator
from calgrad.predictions import flatten_classes

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError("calgrad.integrations.lightning needs Lightning: pip install 'calgrad[lightning]'") from error


class CalibrationCallback(Callback):
    """Fit a map on the last validation's logits, save it, and log what it changes.

    At the end of `fit`: `calibrator` is the fitted map, `file` its JSON file, and the trainer's loggers have the numbers
    before and after (`calibration/ece`, `calibration/ece_calibrated`, ...) and a reliability figure. The numbers after
    are of samples the map was not fitted on: see `calgrad.integrations.validation`.

    Args:
        method: a key of `calgrad.CALIBRATORS`.
        path: the JSON file; by default `calibrator.json` in the trainer's log folder.
        ignore_index: a label that marks positions to leave out.
        class_dim: the dimension of the logits that holds the classes; -1 for tokens.
        bins: of the numbers and the picture.
        loss: a loss that learns from validation, such as adafocal: its `update` is called after each validation.
        elements: how many numbers of logits to keep at most; beyond it a uniform sample of the rows is fitted on.
        **options: the calibrator's own.
    """

    def __init__(
        self,
        method: str = "temperature",
        *,
        path: str | Path | None = None,
        ignore_index: int | None = None,
        class_dim: int = 1,
        bins: int = 15,
        loss: nn.Module | None = None,
        elements: int = FIT_ELEMENTS,
        **options: Any,
    ) -> None:
        if method not in CALIBRATORS:
            raise unknown_name("calibrator", method, CALIBRATORS)
        if loss is not None and not hasattr(loss, "update"):
            raise InputError(f"`loss` is for losses that learn from validation; {loss!r} has no `update`")
        make_calibrator(method, **options)  # a wrong option is refused now and not after the training
        self.method, self.options = method, options
        self.path = None if path is None else Path(path)
        self.ignore_index, self.class_dim, self.bins, self.loss = ignore_index, class_dim, bins, loss
        self.calibrator: Calibrator | None = None
        self.repair: Repair | None = None
        self.file: Path | None = None
        self._elements = elements
        self._rows = RowSample(elements=elements)
        self._step = -1

    # ------------------------------------------------------------------------------------------------------ Lightning's

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Only a validation within this `fit` counts."""
        self._rows.clear()
        self._step = -1

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the previous validation."""
        if not trainer.sanity_checking:
            self._rows = RowSample(elements=max(1, self._elements // trainer.world_size), seed=trainer.global_rank)
            self._step = trainer.global_step

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep what `validation_step` returned; of several loaders the first."""
        if trainer.sanity_checking:
            _logits_and_labels(outputs)  # say what is missing before the training, not after it
        elif dataloader_idx == 0:
            logits, labels = _logits_and_labels(outputs)
            rows = flatten_classes(logits, labels, ignore_index=self.ignore_index, class_dim=self.class_dim)
            self._rows.add(*rows)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let a loss learn that does so from validation."""
        if self.loss is not None and trainer.state.fn == "fit" and not trainer.sanity_checking:
            device = pl_module.device
            self.loss.update(*(rows.to(device) for rows in self._gathered()))  # type: ignore[operator]

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit, save, log."""
        if self._step < 0:
            raise InputError("there was no validation during `fit`, so there is nothing to fit a calibrator on")
        if self._step != trainer.global_step:
            warnings.warn(
                f"the calibrator is fitted on validation logits of step {self._step}, and the model has gone on to step "
                f"{trainer.global_step}: validate after the last epoch",
                CalibrationWarning,
                stacklevel=2,
            )
        self.repair = repair(lambda: make_calibrator(self.method, **self.options), *self._gathered(), bins=self.bins)
        self.calibrator = self.repair.calibrator
        self._rows.clear()
        folder = trainer.log_dir or trainer.default_root_dir  # collective: every process must ask
        if trainer.is_global_zero:
            self.file = self.path or Path(folder) / "calibrator.json"
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.calibrator.save(self.file)
            self._log(trainer, Path(folder))

    def state_dict(self) -> dict[str, Any]:
        """The fitted map, for checkpoints that are written after the end of `fit`."""
        return {} if self.calibrator is None else {"calibrator": self.calibrator.to_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the fitted map of a checkpoint."""
        from calgrad.posthoc import from_dict

        if "calibrator" in state_dict:
            self.calibrator = from_dict(state_dict["calibrator"])

    # ---------------------------------------------------------------------------------------------------------- inside

    def _gathered(self) -> tuple[Tensor, Tensor]:
        """The rows of all processes, the same in each."""
        own = self._rows.rows() if len(self._rows) else None
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return own or self._rows.rows()  # which says that there are none
        everyone: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(everyone, own)
        together = [rows for rows in everyone if rows is not None]
        if not together:
            return self._rows.rows()
        logits, labels = zip(*together)
        return torch.cat(logits), torch.cat(labels)

    def _log(self, trainer: Trainer, folder: Path) -> None:
        assert self.repair is not None
        values = {f"calibration/{name}": value for name, value in self.repair.numbers().items()}
        for logger in trainer.loggers:
            logger.log_metrics(values, step=self._step)
            logger_sink(logger, folder).figure("calibration/reliability", self.repair.figure(), self._step)
            logger.save()


def logger_sink(logger: Any, folder: Path) -> Sink:
    """A Lightning logger as a sink; pictures of a logger that takes none become files in `folder`."""
    kind = type(logger).__name__
    if kind == "TensorBoardLogger":
        return TensorBoardSink(writer=logger.experiment)
    if kind == "MLFlowLogger":
        return MLflowSink(run=(logger.experiment, logger.run_id))
    if kind == "WandbLogger":
        # Through the logger, which counts steps on an axis of its own and leaves wandb's to wandb.
        return WandbSink(run=SimpleNamespace(log=logger.log_metrics))
    return CSVSink(folder)


def _logits_and_labels(outputs: Any) -> tuple[Tensor, Tensor]:
    if isinstance(outputs, Mapping) and "logits" in outputs and "labels" in outputs:
        return outputs["logits"], outputs["labels"]
    if isinstance(outputs, (tuple, list)) and len(outputs) == 2:
        return outputs[0], outputs[1]
    got = sorted(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
    raise InputError(
        "CalibrationCallback needs the logits: let validation_step return "
        f'{{"logits": logits, "labels": labels}}, got {got}'
    )
