"""What the paper proves, checked with numbers: the constant gap, and where the losses have their minimum.

**The gap**, [Lin25] Eq. (12). In expectation over the label, the Brier score exceeds the squared calibration error
by sum_k eta_k (1 - eta_k), whatever p is. True, and exact; but only for beta = gamma = 2, while the trained weights
have other exponents. For those the gap depends on p.

**The minimum**, [Lin25] appendix. The proof puts eta where the loss has the label y: [sum (q - eta)^2] stands
detached before sum -eta log q, one constant for all classes, and so q = eta. But the loss that is trained weighs
each label by its own sum (p - e_k)^2, so the expected gradient sum_k eta_k u_k(p) (p - e_k) vanishes where p_k is
proportional to eta_k u_k(p). That is not eta; `calgrad.losses.posterior` is the map back.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calgrad.losses import BrierNorm, make_loss, posterior
from calgrad.paper.runs import Row
from calgrad.report.tables import Cell, Table

EXPONENTS = ((2, 2), (2, 4), (2, 1), (1, 1))
"""(beta, gamma) for which the gap is looked at."""

MINIMISED: tuple[tuple[str, dict[str, float]], ...] = (
    ("ce", {}),
    ("focal", {"gamma": 3}),
    ("focal-gra", {"gamma": 3}),
    ("flsd53-gra", {}),
    ("dual-gra", {"gamma": 5}),
    ("bsce-gra", {"gamma": 2, "beta": 2}),
    ("bsce-gra", {"gamma": 4, "beta": 2}),
)
DAMPING, ITERATIONS, CONVERGED = 0.08, 6000, 1e-15


def random_distributions(rows: int, classes: int, *, seed: int) -> Tensor:
    """(N, K) points drawn evenly from the simplex, float64."""
    generator = torch.Generator().manual_seed(seed)
    draws = -torch.rand(rows, classes, generator=generator, dtype=torch.float64).log()
    return draws / draws.sum(dim=1, keepdim=True)


# -------------------------------------------------------------------------------------------------------------- the gap


def expected_gap(probs: Tensor, eta: Tensor, *, beta: float = 2, gamma: float = 2) -> Tensor:
    """(N,): E_{y ~ eta}[u(p, y)] - |p - eta|_beta ** gamma, with u the Brier weight."""
    weight = BrierNorm(beta=beta) ** gamma
    expected = (eta * weight.per_label(probs)).sum(dim=1)
    return expected - torch.linalg.vector_norm(probs - eta, ord=beta, dim=1) ** gamma


def gap_rows(*, classes: int = 5, posteriors: int = 50, points: int = 200, seed: int = 0) -> list[Row]:
    """For each (beta, gamma): the gap's spread over p, largest over eta, and its distance from sum eta (1 - eta)."""
    rows: list[Row] = []
    probs = random_distributions(points, classes, seed=seed)
    for beta, gamma in EXPONENTS:
        spread, distance = 0.0, 0.0
        for eta in random_distributions(posteriors, classes, seed=seed + 1):
            gap = expected_gap(probs, eta.expand_as(probs), beta=beta, gamma=gamma)
            spread = max(spread, float(gap.max() - gap.min()))
            distance = max(distance, float((gap - (eta * (1 - eta)).sum()).abs().max()))
        rows.append({"beta": beta, "gamma": gamma, "classes": classes, "spread_over_p": spread, "off_eq_12": distance})
    return rows


# ---------------------------------------------------------------------------------------------------------- the minimum


def stationary_point(loss: torch.nn.Module, eta: Tensor) -> Tensor:
    """(N, K) probabilities at which the expected gradient of `loss` under labels drawn from eta is zero.

    With dL(z, k)/dz = v_k(p) (p - e_k) that is p_k ~ eta_k v_k(p), solved by a damped fixed point of log p.
    """
    logits = eta.log()
    for _ in range(ITERATIONS):
        factor = loss.log_factor(logits.softmax(dim=1))  # type: ignore[operator]
        target = eta.log() if factor is None else eta.log() + factor
        step = DAMPING * (target.log_softmax(dim=1) - logits.log_softmax(dim=1))
        logits = logits + step
        if float(step.abs().max()) < CONVERGED:
            break
    return logits.softmax(dim=1)


def expected_gradient(loss: torch.nn.Module, probs: Tensor, eta: Tensor) -> float:
    """The largest entry of the loss's own gradient under label distributions eta: the check of a stationary point."""
    logits = probs.log().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(logits, eta), logits)
    return float(gradient.abs().max())


def minimiser_rows(*, classes: Sequence[int] = (2, 3, 5, 10), points: int = 50, seed: int = 0) -> list[Row]:
    """For each K and loss: how far the minimiser is from eta, before and after the link, and its confidence."""
    rows: list[Row] = []
    for K in classes:
        eta = random_distributions(points, K, seed=seed)
        for name, options in MINIMISED:
            loss = make_loss(name, reduction="sum", **options)
            probs = stationary_point(loss, eta)
            rows.append(
                {
                    "classes": K,
                    "loss": name,
                    "options": ";".join(f"{k}={v:g}" for k, v in options.items()),
                    "gradient_with_y": expected_gradient(loss, probs, eta),
                    "gradient_at_eta": expected_gradient(loss, eta, eta),
                    "off_eta": float((probs - eta).abs().max()),
                    "off_eta_after_link": float((posterior(loss, probs) - eta).abs().max()),
                    "confidence": float(probs.amax(dim=1).mean()),
                    "confidence_of_eta": float(eta.amax(dim=1).mean()),
                }
            )
    return rows


def proof_rows(*, classes: int = 5, points: int = 50, seed: int = 0) -> list[Row]:
    """The appendix's loss, with eta in the weight: its gradient at q = eta, beside that of the loss that is trained."""
    eta = random_distributions(points, classes, seed=seed)
    logits = eta.log().requires_grad_()
    # Detached, sum (q - eta)^2 is one number C for all labels. It scales the gradient C (q - eta) and moves no zero of
    # it, so any C > 0 shows what the proof shows.
    (with_eta,) = torch.autograd.grad(-(eta * logits.log_softmax(dim=1)).sum(), logits)
    with_y = expected_gradient(make_loss("bsce-gra", gamma=2, beta=2, reduction="sum"), eta, eta)
    return [
        {
            "loss": "as in the proof: one weight for all labels, from eta",
            "gradient_at_eta": float(with_eta.abs().max()),
        },
        {"loss": "as trained: a weight for each label y", "gradient_at_eta": with_y},
    ]


# ----------------------------------------------------------------------------------------------------------- as tables


def theory_tables(gap: Sequence[Row], proof: Sequence[Row], minima: Sequence[Row]) -> list[Table]:
    """The three checks, ready to print."""
    first = Table(
        "[Lin25] Eq. (12): E[u] - |p - eta| ** gamma", ["beta", "gamma", "spread over p", "from sum eta (1 - eta)"]
    )
    first.sections.append(
        ("", [_cells(f"{r['beta']:g}", f"{r['gamma']:g}", r["spread_over_p"], r["off_eq_12"]) for r in gap])
    )
    first.caption = "Constant in p (spread 0) and as published for beta = gamma = 2 alone."
    second = Table("The appendix's proof: largest gradient at q = eta", ["loss", "gradient"])
    second.sections.append(("", [_cells(r["loss"], r["gradient_at_eta"]) for r in proof]))
    third = Table(
        "Where the expected loss has its minimum",
        ["loss", "gradient there", "max |p - eta|", "after the link", "confidence", "of eta"],
    )
    for classes in dict.fromkeys(r["classes"] for r in minima):
        lines = [
            _cells(
                r["loss"] + (f" ({r['options']})" if r["options"] else ""),
                r["gradient_with_y"],
                f"{r['off_eta']:.4f}",
                r["off_eta_after_link"],
                f"{r['confidence']:.3f}",
                f"{r['confidence_of_eta']:.3f}",
            )
            for r in minima
            if r["classes"] == classes
        ]
        third.sections.append((f"{classes} classes", lines))
    third.caption = "eta drawn evenly from the simplex; expectations over the label are exact sums, in float64."
    return [first, second, third]


def _cells(*values: str | float) -> list[Cell]:
    return [Cell(v if isinstance(v, str) else f"{v:.1e}") for v in values]
