"""Dense outputs (pixels, tokens, boxes) as rows: a sample is whatever has a label of its own.

The losses and the streaming metrics take logits (N, K, d1, ...) as they are. What works on rows, such as `evaluate`,
`Predictions` and the calibrators, is reached through `flatten_classes`, and `map_rows` brings a calibrator's answer
back into the shape it came from.

Neighbouring pixels are alike, so a thousand pixels of one image say less than a thousand images: noise floors,
intervals and tests, which count samples as independent, are too narrow on them. `sample=` draws some pixels of many
images, which costs little and comes closer to what they assume.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from calgrad.checks import ArrayLike, InputError, loss_inputs, positive_int, to_tensor


def flatten_classes(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    ignore_index: int | None = None,
    class_dim: int = 1,
    sample: int | None = None,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Rows (n, K) and labels (n,) of the positions that count, in the order of the labels.

    Args:
        logits: (N, K, d1, ...), or with the classes in another dimension, such as a language model's (N, T, K).
        labels: (N, d1, ...) class indices.
        ignore_index: positions with this label are left out (255 in most segmentation data, -100 for tokens).
        class_dim: which dimension of `logits` holds the classes: 1, or -1 for tokens and boxes.
        sample: keep at most this many positions, drawn at random; only those are copied.
        seed: of the drawing.

    Example:
        >>> import torch
        >>> from calgrad import evaluate
        >>> from calgrad.predictions import flatten_classes
        >>> logits, labels = torch.randn(2, 5, 8, 8), torch.randint(5, (2, 8, 8))
        >>> labels[0] = 255
        >>> rows, kept = flatten_classes(logits, labels, ignore_index=255)
        >>> rows.shape, evaluate(logits=rows, labels=kept).n
        (torch.Size([64, 5]), 64)
    """
    values, indices = _classes_last(to_tensor(logits, "logits"), class_dim), to_tensor(labels, "labels")
    if loss_inputs(values.movedim(-1, 1), indices):
        raise InputError(f"`labels` must be integer class indices, got {indices.dtype}")
    indices = indices.to(values.device)
    counts = torch.ones_like(indices, dtype=torch.bool) if ignore_index is None else indices != ignore_index
    if sample is None:
        return values[counts], indices[counts]
    positive_int("sample", sample)
    where = counts.nonzero()
    order = torch.randperm(len(where), generator=torch.Generator().manual_seed(seed))[:sample]
    at = where[order.sort().values.to(where.device)].unbind(dim=1)
    return values[at], indices[at]


def map_rows(calibrator: Callable[[Tensor], Tensor], logits: ArrayLike, *, class_dim: int = 1) -> Tensor:
    """What a map of rows (N, K), such as a fitted calibrator, makes of dense logits; in their shape.

    Example:
        >>> import torch, calgrad
        >>> from calgrad.predictions import flatten_classes, map_rows
        >>> logits = torch.randn(2, 5, 8, 8)
        >>> labels = torch.distributions.Categorical(logits=logits.movedim(1, -1)).sample()
        >>> temperature = calgrad.make_calibrator("temperature").fit(*flatten_classes(2 * logits, labels))
        >>> map_rows(temperature, logits).shape
        torch.Size([2, 5, 8, 8])
    """
    values = _classes_last(to_tensor(logits, "logits"), class_dim)
    rows = calibrator(values.reshape(-1, values.shape[-1]))
    return rows.reshape(values.shape).movedim(-1, class_dim)


def _classes_last(logits: Tensor, class_dim: int) -> Tensor:
    if logits.ndim < 2 or not -logits.ndim <= class_dim < logits.ndim or class_dim % logits.ndim == 0:
        raise InputError(
            f"`class_dim` must be a dimension of `logits` after the first, got {class_dim} for shape {tuple(logits.shape)}"
        )
    return logits.movedim(class_dim, -1)
