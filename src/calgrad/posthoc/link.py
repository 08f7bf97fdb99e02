"""The link as a calibrator: what the minimiser of a loss says about the classes.

A network trained with a weighted loss does not head for the class posterior but for another distribution, from which
the posterior can be computed (`calgrad.losses.posterior`). "link" does so, with no parameter to fit. A finite network
also misses the scale of its logits; "link-temperature" corrects that first, where the network works, in the logits,
and then applies the link:

    T -> p = softmax(logits / T) -> eta = posterior(loss, p).

If the logits are those of the minimiser up to a factor, this order returns the posterior exactly. The other, a
temperature on the log of eta, does not, unless the link is itself a temperature.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from calgrad.checks import InputError
from calgrad.metrics.decomposition import golden_section
from calgrad.posthoc.base import Calibrator, Fitted, Parameters, mean_nll
from calgrad.posthoc.temperature import solve_temperature


class Link(Calibrator):
    """eta = posterior(loss, softmax(logits)): no parameters, nothing learned from the samples.

    `fit` still wants samples: it reports what the link does to their NLL, and warns where it hurts.

    Args:
        loss: the loss the model was trained with, or its name in `calgrad.losses.LOSSES`.
        loss_options: with a name, the options it was made with.
    """

    method = "link"
    shapes: ClassVar = {}

    def __init__(self, *, loss: str | nn.Module | None = None, loss_options: dict[str, Any] | None = None) -> None:
        super().__init__()
        if loss is None:
            raise InputError(
                f"{self.method!r} undoes a loss and must know which: pass the one the model was trained with, as in "
                f'make_calibrator("{self.method}", loss="bsce-gra", loss_options={{"gamma": 4}})'
            )
        self.loss, self.options = _loss_and_options(loss, loss_options or {})

    def _fit(self, logits: Tensor, labels: Tensor) -> Fitted:
        return Fitted({})

    def _calibrate(self, logits: Tensor, parameters: Parameters) -> Tensor:
        from calgrad.losses.link import posterior, traceable_posterior

        # float64: at p = 1 - 1e-10 a weight of (1 - p)**4 is still a number. What underflows even so is tiny, not zero.
        probs = logits.double().softmax(dim=1)
        link = traceable_posterior if torch.compiler.is_compiling() else posterior  # an export follows no value
        return link(self.loss, probs).clamp(min=1e-300).log().to(logits.dtype)


class LinkTemperature(Link):
    """eta = posterior(loss, softmax(logits / T)), with the T of least validation NLL of eta.

    Args:
        loss: the loss the model was trained with, or its name in `calgrad.losses.LOSSES`.
        loss_options: with a name, the options it was made with.
    """

    method = "link-temperature"
    shapes: ClassVar = {"temperature": ""}

    @property
    def temperature(self) -> float:
        """The fitted temperature."""
        self.check_classes(self.classes or 0)
        return float(self.parameters["temperature"])

    def _fit(self, logits: Tensor, labels: Tensor) -> Fitted:
        def nll(u: float) -> float:
            value = mean_nll(
                lambda rows: super(LinkTemperature, self)._calibrate(rows.double() / math.exp(u), {}), logits, labels
            )
            return value if math.isfinite(value) else math.inf

        centre = math.log(solve_temperature(logits, labels).temperature)
        u, inside = minimum(nll, centre - 4, centre + 4)
        note = "" if inside else f"the NLL still falls at the end of the search, T = {math.exp(u):.4g}"
        return Fitted({"temperature": torch.tensor(math.exp(u), dtype=torch.float64)}, inside, note)

    def _calibrate(self, logits: Tensor, parameters: Parameters) -> Tensor:
        return super()._calibrate(logits / parameters["temperature"], {})


def minimum(function: Callable[[float], float], low: float, high: float, *, points: int = 33) -> tuple[float, bool]:
    """The minimiser of a function of one number that may have several minima, and whether it lies inside the interval.

    A grid finds the valley, golden sections its lowest point.
    """
    width = (high - low) / (points - 1)
    values = [function(low + i * width) for i in range(points)]
    best = min(range(points), key=values.__getitem__)
    if best in (0, points - 1):
        return low + best * width, False
    a, b = low + (best - 1) * width, low + (best + 1) * width
    return golden_section(function, a, b, steps=32)[0], True


def _loss_and_options(loss: str | nn.Module, options: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    """The loss object, and what rebuilds it from a file."""
    from calgrad.losses import make_loss

    if isinstance(loss, str):
        return make_loss(loss, **options), {"loss": loss, "loss_options": options}
    if options:
        raise InputError("`loss_options` go with the name of a loss; this one is an object and has its options already")
    return loss, {"loss": loss}
