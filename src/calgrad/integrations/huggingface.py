"""Hugging Face's Trainer: a loss, metrics and a callback, for classification, segmentation and language models.

    metrics = CalibrationMetrics()
    trainer = Trainer(..., compute_loss_func=loss_function("bsce-gra"), compute_metrics=metrics,
                      callbacks=[CalibratorCallback(metrics)])

Logits are (N, K), a token model's (N, T, K), or (N, K, H, W): with three dimensions the classes are the last one, as in all
of transformers. Labels of -100 are left out, as there. `shift=True` is for causal language models, whose token t predicts
label t + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calgrad.checks import InputError, to_tensor
from calgrad.integrations.tracking import Sink
from calgrad.integrations.validation import FIT_ELEMENTS, Repair, RowSample, numbers, repair
from calgrad.losses import ConsistencyCE, make_loss
from calgrad.metrics import Tally, tally
from calgrad.posthoc import Calibrator, make_calibrator
from calgrad.predictions import flatten_classes

try:
    from transformers import EvalPrediction, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise ImportError("calgrad.integrations.huggingface needs transformers: pip install 'calgrad[hf]'") from error

IGNORED = -100
"""The label that transformers leaves out, everywhere; the Trainer counts items by it."""


class TrainerLoss:
    """What `loss_function` returns: `compute_loss_func` of a Trainer, around a calgrad loss (`.loss`)."""

    def __init__(self, name: str, *, shift: bool = False, **options: Any) -> None:
        for option in ("reduction", "ignore_index"):
            if option in options:
                raise InputError(
                    f"`{option}` is the Trainer's to decide, and its ignored label is {IGNORED}; leave it out"
                )
        self.loss = make_loss(name, reduction="sum", **options)
        self.shift = shift
        if isinstance(self.loss, ConsistencyCE):
            raise InputError(f"{name!r} needs the model's features, which a Trainer's loss function does not see")

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The sum over the items of this batch, divided by the number of items that the optimiser's step is made of."""
        if not self.shift and type(outputs).__name__.startswith("CausalLM"):
            raise InputError("a causal language model's token t predicts label t + 1: make the loss with shift=True")
        logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
        logits, labels = _aligned(logits, labels.to(logits.device), shift=self.shift)
        total = self.loss.to(logits.device)(logits.movedim(_class_dim(logits), 1), labels)
        count = (labels != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        return total / (count.to(total.device) if isinstance(count, Tensor) else count)


def loss_function(name: str, *, shift: bool = False, **options: Any) -> TrainerLoss:
    """A Trainer's `compute_loss_func` from a loss's name.

    The Trainer counts the items (samples, or tokens that are not ignored) of all batches that one optimiser step
    accumulates, and the loss divides its sum by that count. So four batches of eight have the gradient of one batch of
    32, however the tokens are spread over them. Class weights scale the items and are not divided out.

    The Trainer's own `label_smoothing_factor` does not reach a loss function: pass `label_smoothing` here.

    Args:
        name: a key of `calgrad.LOSSES`.
        shift: for causal language models.
        **options: the loss's own, `weight` and `label_smoothing`.

    Example:
        >>> import torch
        >>> from calgrad.integrations.huggingface import loss_function
        >>> compute_loss = loss_function("bsce-gra", gamma=2, label_smoothing=0.05)
        >>> compute_loss({"logits": torch.randn(8, 3)}, torch.randint(3, (8,)), num_items_in_batch=32).shape
        torch.Size([])
    """
    return TrainerLoss(name, shift=shift, **options)


class CalibrationMetrics:
    """A Trainer's `compute_metrics`: accuracy, NLL, Brier, ECE with its noise floor and test, classwise ECE.

    Works on the whole evaluation at once or, under `batch_eval_metrics=True`, batch by batch with memory that does not
    grow with it, which a language model's vocabulary needs. The values are the same.

    Args:
        bins: confidence bins.
        shift: for causal language models.
        ignore_index: the label that is left out; transformers' own by default.

    Example:
        >>> import numpy as np
        >>> from transformers import EvalPrediction
        >>> from calgrad.integrations.huggingface import CalibrationMetrics
        >>> logits, labels = np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 1, -100])
        >>> round(CalibrationMetrics()(EvalPrediction(logits, labels))["accuracy"], 4)
        0.6667
    """

    def __init__(self, *, bins: int = 15, shift: bool = False, ignore_index: int = IGNORED) -> None:
        self.bins, self.shift, self.ignore_index = bins, shift, ignore_index
        self.kept: RowSample | None = None
        """Where the rows of an evaluation are kept for a `CalibratorCallback`."""
        self._found: Tally | None = None
        self._is_complete = True

    def __call__(self, prediction: EvalPrediction, compute_result: bool = True) -> dict[str, float]:
        """The numbers of an evaluation, or nothing yet while batches are still to come."""
        if self._is_complete:
            self._found = None
            if self.kept is not None:
                self.kept.clear()
        self._is_complete = compute_result
        self._add(prediction)
        if not compute_result:
            return {}
        if self._found is None:
            raise InputError(f"there was nothing to evaluate: all labels were {self.ignore_index}")
        return numbers(self._found)

    def _add(self, prediction: EvalPrediction) -> None:
        values, labels = prediction.predictions, prediction.label_ids
        if isinstance(values, (tuple, list)):  # models that return more than logits return them first
            values = values[0]
        logits, indices = _aligned(to_tensor(values, "predictions"), to_tensor(labels, "label_ids"), shift=self.shift)
        rows = flatten_classes(logits, indices, ignore_index=self.ignore_index, class_dim=_class_dim(logits))
        if not len(rows[1]):
            return
        found, _, _ = tally(logits=rows[0], labels=rows[1], bins=self.bins)
        self._found = found if self._found is None else self._found + found
        if self.kept is not None:
            self.kept.add(*rows)


class CalibratorCallback(TrainerCallback):
    """After each evaluation, fit a post-hoc map on its logits and save it; the last one stands.

    `calibrator` is the fitted map. The numbers after it, of samples it was not fitted on, join the dictionary that
    `trainer.evaluate()` returns (`eval_ece_calibrated`, ...). Predictions on test data (`trainer.predict`) are never
    fitted on.

    Args:
        metrics: the `CalibrationMetrics` that the Trainer has as `compute_metrics`.
        method: a key of `calgrad.CALIBRATORS`.
        path: the JSON file; by default `calibrator.json` in the Trainer's `output_dir`.
        prefix: which evaluations to fit on; with several evaluation sets "eval_" and the set's name.
        loss: the `loss_function`, if its loss learns from validation as adafocal does.
        sink: gets the numbers and a reliability figure: see `calgrad.integrations.tracking`.
        elements: how many numbers of logits to keep at most; beyond it a uniform sample of the rows is fitted on.
        **options: the calibrator's own.
    """

    def __init__(
        self,
        metrics: CalibrationMetrics,
        method: str = "temperature",
        *,
        path: str | Path | None = None,
        prefix: str = "eval",
        loss: TrainerLoss | None = None,
        sink: Sink | None = None,
        elements: int = FIT_ELEMENTS,
        **options: Any,
    ) -> None:
        make_calibrator(method, **options)  # a wrong option is refused now and not after the training
        if loss is not None and not hasattr(loss.loss, "update"):
            raise InputError(f"`loss` is for losses that learn from validation; {loss.loss!r} has no `update`")
        self.metrics, self.method, self.options = metrics, method, options
        self.path = None if path is None else Path(path)
        self.prefix, self.loss, self.sink = prefix, loss, sink
        self.calibrator: Calibrator | None = None
        self.repair: Repair | None = None
        self.file: Path | None = None
        metrics.kept = RowSample(elements=elements)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Fit on what the evaluation saw."""
        assert self.metrics.kept is not None
        if metrics is None or f"{self.prefix}_ece" not in metrics:
            return
        logits, labels = self.metrics.kept.rows()
        if self.loss is not None:
            device = getattr(kwargs.get("model"), "device", torch.device("cpu"))
            self.loss.loss.to(device).update(logits.to(device), labels.to(device))  # type: ignore[operator]
        self.repair = repair(
            lambda: make_calibrator(self.method, **self.options), logits, labels, bins=self.metrics.bins
        )
        self.calibrator = self.repair.calibrator
        values = self.repair.numbers()
        metrics |= {f"{self.prefix}_{name}": value for name, value in values.items() if name.endswith("_calibrated")}
        if state.is_world_process_zero:
            self.file = self.path or Path(str(args.output_dir)) / "calibrator.json"
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.calibrator.save(self.file)
            if self.sink is not None:
                self.sink.log({f"calibration/{name}": value for name, value in values.items()}, state.global_step)
                self.sink.figure("calibration/reliability", self.repair.figure(), state.global_step)


def _class_dim(logits: Tensor) -> int:
    return -1 if logits.ndim == 3 else 1


def _aligned(logits: Tensor, labels: Tensor, *, shift: bool) -> tuple[Tensor, Tensor]:
    """Logits and labels of the same positions."""
    if not shift:
        return logits, labels
    if logits.ndim != 3:
        raise InputError(f"`shift` is for language models with logits (N, T, K), got shape {tuple(logits.shape)}")
    return logits[:, :-1], labels[:, 1:]
