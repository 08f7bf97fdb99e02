"""-log p_y together with the probabilities it was computed from.

A weight that is not differentiated needs p as a number, and cross-entropy's own backward pass needs p again. Autograd
would take the exponential of all N x K logits three times and keep two matrices; here it is taken once and kept once.
That is what holds a weighted loss near the price of plain cross-entropy when K is large.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calgrad.losses.base import at


FUSED_FROM = 2**16
"""Logits in a batch from which the fused form is faster: below, its call from Python costs more than it saves."""


def nll_and_probs(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(N,) -log p_y, differentiable (twice too), and (N, K) p, which is a constant to autograd."""
    if logits.numel() < FUSED_FROM or torch.compiler.is_compiling():  # a compiler fuses the plain form by itself
        log_probs = logits.log_softmax(dim=1)
        return -at(log_probs, labels), log_probs.detach().exp()
    return _NLL.apply(logits, labels)


class _NLL(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        probs = logits.softmax(dim=1)
        # The largest probability is at least 1 / K, so its logarithm is safe, and p_y = p_max exp(z_y - z_max).
        nll = logits.amax(dim=1) - at(logits, labels) - probs.amax(dim=1).log()
        return nll, probs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])
        ctx.save_for_forward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None]:
        logits, labels, probs = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again: then p must be a function of the logits once more
            probs = logits.softmax(dim=1)
        grad = grad.unsqueeze(1)
        return (probs * grad).scatter_add_(1, labels.unsqueeze(1), -grad), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> tuple[Tensor, None]:
        _, labels, probs = ctx.saved_tensors
        return (probs * tangent).sum(dim=1) - at(tangent, labels), None
