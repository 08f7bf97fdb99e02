"""A model with a fitted calibrator behind it, as one nn.Module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from calgrad.checks import InputError, one_of
from calgrad.posthoc.base import Calibrator

OUTPUTS = ("probs", "log_probs", "logits")
PREFIX = "calibrator_"


class CalibratedModel(nn.Module):
    """`model(x)` -> logits -> calibrated probs, to deploy in the place of `model`.

    The fitted parameters are buffers: they move with `.to(device)`, are saved in the state_dict and exported by
    `torch.export` (links where they are a formula: docs/deployment.md). They stay float64 when the model is made half
    precision; the calibrator works in the dtype of the logits, float32 at least.

    Args:
        model: returns logits (N, K).
        calibrator: fitted on logits of this model.
        output: "probs", "log_probs", or "logits", whose softmax is the calibrated distribution.

    Example:
        >>> import torch, calgrad
        >>> net, x = torch.nn.Linear(4, 3), torch.randn(500, 4)
        >>> labels = torch.multinomial((2 * net(x)).softmax(1), 1)[:, 0]
        >>> calibrator = calgrad.make_calibrator("temperature").fit(net(x), labels)
        >>> calgrad.CalibratedModel(net, calibrator)(x).sum(1).allclose(torch.ones(500))
        True
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator, *, output: str = "probs") -> None:
        super().__init__()
        one_of("output", output, OUTPUTS)
        if not calibrator.is_fitted:
            raise InputError(f"fit the {calibrator.method!r} calibrator before putting it behind a model")
        self.model = model
        self.output = output
        self._fitted = copy.copy(calibrator)
        for name, value in calibrator.parameters.items():
            self.register_buffer(PREFIX + name, value.clone())

    @property
    def calibrator(self) -> Calibrator:
        """The calibrator with the parameters this module now has (a state_dict may have changed them)."""
        current = copy.copy(self._fitted)
        current.parameters = {name: value.detach().cpu().double() for name, value in self._tensors().items()}
        return current

    def forward(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Calibrated probs (or what `output` says) of `model(inputs, *args, **kwargs)`."""
        logits = self.model(inputs, *args, **kwargs)
        self._fitted.check_classes(logits.shape[1])
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        calibrated = self._fitted._calibrate(logits, {k: v.to(logits.dtype) for k, v in self._tensors().items()})
        if self.output == "logits":
            return calibrated
        return calibrated.softmax(dim=1) if self.output == "probs" else calibrated.log_softmax(dim=1)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"calibrator={self._fitted!r}, output={self.output!r}"

    def _tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, PREFIX + name) for name in self._fitted.parameters}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = self._tensors()
        super()._apply(fn, recurse)
        for name, value in exact.items():  # .half() must not round a temperature
            moved = getattr(self, PREFIX + name)
            wide = torch.float32 if moved.device.type == "mps" else torch.float64
            setattr(self, PREFIX + name, moved if moved.is_meta else value.to(moved.device, wide))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # Tables of another fit may be longer or shorter; the method is the same, so their names are.
        for name in self._fitted.parameters:
            saved = state_dict.get(prefix + PREFIX + name)
            if saved is not None and saved.shape != getattr(self, PREFIX + name).shape:
                setattr(self, PREFIX + name, torch.empty_like(saved, device=getattr(self, PREFIX + name).device))
        super()._load_from_state_dict(state_dict, prefix, *args)
