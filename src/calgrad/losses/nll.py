"""-log p_y together with the probabilities it was computed from.

A weight that is not differentiated needs p as a number, and cross-entropy's own backward pass needs p again. Autograd
would take the exponential of all N x K logits three times and keep two matrices; here it is taken once and kept once.
That is what holds a weighted loss near the price of plain cross-entropy when K is large.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calgrad.losses.base import at, without

FUSED_FROM = 2**16
"""Logits in a batch from which the fused form is faster: below, its call from Python costs more than it saves."""


def nll_and_probs(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(N,) -log p_y, differentiable (twice too), and p in two parts: (N,) p_y and (N, K) p with 0 at the label.

    The parts are constants to autograd. Apart they are exact where p_y is near 1: nothing is subtracted from a sum.
    """
    if logits.numel() < FUSED_FROM or torch.compiler.is_compiling():  # a compiler fuses the plain form by itself
        log_probs = logits.log_softmax(dim=1)
        probs = log_probs.detach().exp()
        return -at(log_probs, labels), at(probs, labels), without(probs, labels)
    return _NLL.apply(logits, labels)


class _NLL(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        probs = logits.softmax(dim=1)
        # The largest probability is at least 1 / K, so its logarithm is safe, and p_y = p_max exp(z_y - z_max).
        nll = logits.amax(dim=1) - at(logits, labels) - probs.amax(dim=1).log()
        return nll, at(probs, labels), probs.scatter_(1, labels.unsqueeze(1), 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.save_for_forward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, None]:
        logits, labels, p_true, others = ctx.saved_tensors
        index, grad = labels.unsqueeze(1), grad.unsqueeze(1)
        if torch.is_grad_enabled():  # to be differentiated again: then p must be a function of the logits once more
            return (logits.softmax(dim=1) * grad).scatter_add(1, index, -grad), None
        return (others * grad).scatter_(1, index, (p_true.unsqueeze(1) - 1) * grad), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> tuple[Tensor, None, None]:
        _, labels, p_true, others = ctx.saved_tensors
        return (others * tangent).sum(dim=1) + (p_true - 1) * at(tangent, labels), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, int, int]]:
        size = info.batch_size  # a batch of batches is one larger batch
        stacked = [x.expand(size, *x.shape) if d is None else x.movedim(d, 0) for x, d in zip(inputs, in_dims[:2])]
        outputs = _NLL.apply(*(x.flatten(0, 1) for x in stacked))
        return tuple(x.unflatten(0, stacked[1].shape) for x in outputs), (0, 0, 0)
