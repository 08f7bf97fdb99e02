"""The link: from what a loss's minimiser says to the class posterior it encodes.

Let eta be the true posterior at x and p what the network says there. Training stops where the expected gradient is
zero,

    sum_k eta_k dL(z, k)/dz = 0.                                                                                 (1)

Where dL(z, k)/dz = v_k(p) (p - e_k), component j of (1) reads p_j sum_k eta_k v_k = eta_j v_j, so p_k is proportional
to eta_k v_k(p), and

    eta_k is proportional to p_k / v_k(p).                                                                       (2)

A weight on the gradient has v_k = u_k, the weight if the label were k. A weight on the loss that depends on p_y alone
has v(p) = u(p) + p u'(p) log p. For any other loss (1) says that eta spans the null space of the matrix whose columns
are the K gradients, and a loss of softmax(z) always has one: all gradients are orthogonal to the vector of ones.

Class weights and label smoothing are part of the training target, not of L: (2) returns w_k ((1 - eps) eta_k + eps /
K) up to a constant, which is undone after it. See docs/link.md for the derivation, the pictures and what it says of
the paper.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from calgrad.checks import ArrayLike, InputError, prob_matrix
from calgrad.losses.base import Batch, Loss
from calgrad.losses.weighted import ConsistencyCE

CHUNK = 2**24
"""Entries of the (rows, K, K) matrices solved at a time: 128 MB in float64."""

AnyLoss = Loss | Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def posterior(loss: AnyLoss, probs: ArrayLike, *, consistency: ArrayLike | None = None) -> Tensor:
    """The class posterior that `probs` encode when they come from a network trained to the minimum of `loss`.

    Args:
        loss: a loss of this package, or any function of (logits, labels) that returns one value a sample (reduction
            "none") and sees the logits through their softmax.
        probs: (N, K), the network's probabilities.
        consistency: (N, K), for `consistency-gra` alone: what its weight was taken from.

    Returns:
        (N, K) probabilities, in the dtype of `probs`. Where no posterior leads to these probabilities (they are sharper
        than label smoothing allows, say) the nearest thing: negative entries become 0.

    Raises:
        InputError: the loss has no such map (it couples the samples of a batch, or is blind to part of the posterior).

    Example:
        >>> import calgrad
        >>> loss = calgrad.make_loss("focal-gra", gamma=3)
        >>> calgrad.posterior(loss, [[0.6, 0.4]])  # in two classes: the logits times gamma + 1
        tensor([[0.8351, 0.1649]], dtype=torch.float64)
    """
    given = prob_matrix(probs)
    exact = given.double() / given.double().sum(dim=1, keepdim=True)
    if not isinstance(loss, Loss):
        return _null_space(loss, exact).to(given.dtype)
    _refuse(loss, given.shape[1])
    return _undo_target(loss, _bare(loss, exact, consistency)).to(given.dtype)


def traceable_posterior(loss: AnyLoss, probs: Tensor) -> Tensor:
    """`posterior` without a look at any value, for `torch.export` and `torch.compile`: (2) and arithmetic alone.

    Args:
        loss: one that `posterior` takes, and whose link is in closed form.
        probs: (N, K) float64, rows that sum to one.

    Raises:
        InputError: this link is the solution of a linear system in each row, which a deployed model should not need.
    """
    if isinstance(loss, Loss) and not isinstance(loss, ConsistencyCE):
        if loss.proper:
            return _undo_target(loss, probs)
        log_factor = loss.log_factor(probs)
        if log_factor is not None:
            return _undo_target(loss, torch.softmax(probs.log() - log_factor, dim=1))
    raise InputError(
        f"the link of {loss!r} solves a linear system for each row and is not exported; that of a -gra loss, and of "
        "focal, flsd53, inverse-focal and adafocal, is a formula and can be"
    )


def _refuse(loss: Loss, classes: int) -> None:
    if loss.no_posterior:
        raise InputError(f"{type(loss).__name__} has no posterior: {loss.no_posterior}")
    if loss.weight is not None and (len(loss.weight) != classes or not bool((loss.weight > 0).all())):
        raise InputError(f"no posterior: {classes} positive class weights are needed, got {loss.weight.tolist()}")
    if loss.label_smoothing == 1:
        raise InputError("no posterior: with label_smoothing = 1 the labels say nothing")


def _bare(loss: Loss, probs: Tensor, consistency: ArrayLike | None) -> Tensor:
    """The posterior under L alone, without class weights and smoothing."""
    if isinstance(loss, ConsistencyCE):
        if consistency is None:
            raise InputError("`consistency` is needed: the weight of this loss was taken from it, not from `probs`")
        log_factor: Tensor | None = loss.log_factor(prob_matrix(consistency, "consistency").double())
    elif consistency is not None:
        raise InputError(f"`consistency` is for consistency-gra alone; {type(loss).__name__} does not use it")
    elif loss.proper:
        return probs
    else:
        log_factor = loss.log_factor(probs)
    if log_factor is None:
        return _null_space(lambda logits, labels: loss.for_label(Batch(logits, labels, labels >= 0)), probs)
    if not bool(log_factor.isfinite().all()):
        raise InputError(
            f"{loss!r} has no posterior at these probabilities: there the pull of a label changes sign (for the "
            "inverse focal loss, from gamma 3.6 on), so they are no minimum of the expected loss"
        )
    return torch.softmax(probs.log() - log_factor, dim=1)  # (2), in logarithms: u underflows long before log u


def _undo_target(loss: Loss, mixed: Tensor) -> Tensor:
    """Undo class weights, then label smoothing: `mixed` is proportional to w_k ((1 - eps) eta_k + eps / K)."""
    if loss.weight is not None:
        mixed = mixed / loss.weight.to(mixed)
        mixed = mixed / mixed.sum(dim=1, keepdim=True)
    return _to_simplex((mixed - loss.label_smoothing / mixed.shape[1]) / (1 - loss.label_smoothing))


def _null_space(per_sample: Callable[[Tensor, Tensor], Tensor], probs: Tensor) -> Tensor:
    rows = max(1, CHUNK // probs.shape[1] ** 2)
    # At a corner all but one gradient have the same null space: what is certain stays so. Nothing is left to solve.
    is_certain = probs.amax(dim=1, keepdim=True) > 1 - 1e-12
    inside = torch.where(is_certain, 1 / probs.shape[1], probs)
    return torch.where(is_certain, probs, torch.cat([_solve(per_sample, chunk) for chunk in inside.split(rows)]))


def _solve(per_sample: Callable[[Tensor, Tensor], Tensor], probs: Tensor) -> Tensor:
    """Solve (G^T + 1 1^T) eta = 1, with row k of G the gradient for label k: the one solution has G^T eta = 0 and sum 1.

    That is so since 1^T G^T = 0: multiplied by 1^T the equation says K sum(eta) = K. Rows are scaled to length one before
    (the gradients of a saturated row differ by many orders of magnitude) and the solution is scaled back.
    """
    gradients = torch.stack([_gradient(per_sample, probs, label) for label in range(probs.shape[1])], dim=1)
    shift = gradients.mean(dim=2, keepdim=True)
    gradients = gradients - shift  # what rounding left of it
    lengths = gradients.norm(dim=2, keepdim=True)
    if bool((shift.abs().amax(dim=1) > 1e-9 * lengths.amax(dim=1)).any()):
        raise InputError("no posterior: the loss changes when a constant is added to all logits, so it sees no softmax")
    lengths = lengths.clamp_min(torch.finfo(probs.dtype).tiny)
    solution, info = torch.linalg.solve_ex((gradients / lengths).transpose(1, 2) + 1.0, torch.ones_like(probs))
    if bool(info.any()):
        row = int(info.nonzero()[0])
        raise InputError(f"no posterior: in row {row} the gradients vanish for more than one mixture of labels")
    # Scaled back in logarithms, as a length may be 1e-300.
    return torch.softmax(solution.clamp_min(0).log() - lengths.squeeze(2).log(), dim=1)


def _gradient(per_sample: Callable[[Tensor, Tensor], Tensor], probs: Tensor, label: int) -> Tensor:
    with torch.enable_grad():
        logits = probs.clamp_min(torch.finfo(probs.dtype).tiny).log().requires_grad_()
        labels = torch.full((len(probs),), label, device=probs.device)
        values = per_sample(logits, labels)
        if values.shape != labels.shape or not values.requires_grad:
            raise InputError(
                f"no posterior: the loss must return one differentiable value a sample, shape ({len(labels)},), got "
                f"{tuple(values.shape)}; use reduction='none'"
            )
        return torch.autograd.grad(values.sum(), logits)[0]


def _to_simplex(values: Tensor) -> Tensor:
    positive = values.clamp_min(0)
    return positive / positive.sum(dim=1, keepdim=True)
