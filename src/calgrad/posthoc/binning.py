"""Calibrators without a formula: isotonic regression, histogram binning, and Bayesian binning into quantiles.

Each is a function of the log-odds s given by a table: straight lines between knots for isotonic regression, steps for
the binnings. Bins are right-closed as everywhere in calgrad. The tables of all classes are padded to one length by
repeating their last entry.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from calgrad.checks import one_of, positive_int
from calgrad.metrics.binning import equal_width_edges
from calgrad.posthoc.base import Fitted, Parameters
from calgrad.posthoc.one_vs_rest import Odds, OneVersusRest

SCHEMES = ("mass", "width")


class Isotonic(OneVersusRest):
    """The rising function of s of least squared error, which is also that of least NLL (pool adjacent violators) [Zadrozny02].

    Args:
        smoothing: as in every one-versus-rest method.
    """

    method = "isotonic"
    shapes: ClassVar = {"knots": "CM", "values": "CM", "pseudo": ""}

    def _fit_binary(self, odds: Odds, truth: Tensor) -> Fitted:
        from sklearn.isotonic import IsotonicRegression

        tables = []
        for score, hit in zip(odds.log_odds.T.cpu().numpy(), truth.T.double().cpu().numpy()):
            fitted = IsotonicRegression(out_of_bounds="clip").fit(score, hit)
            tables.append((torch.from_numpy(fitted.X_thresholds_), torch.from_numpy(fitted.y_thresholds_)))
        width = max(2, *(len(knots) for knots, _ in tables))
        return Fitted({"knots": padded([k for k, _ in tables], width), "values": padded([v for _, v in tables], width)})

    def _answer(self, odds: Odds, parameters: Parameters) -> Tensor:
        score = odds.log_odds.T.contiguous()
        knots, values = parameters["knots"].contiguous(), parameters["values"]
        after = torch.searchsorted(knots, score).clamp(1, knots.shape[1] - 1)
        left, right = knots.gather(1, after - 1), knots.gather(1, after)
        low, high = values.gather(1, after - 1), values.gather(1, after)
        width = right - left
        part = ((score - left) / width.masked_fill(width == 0, 1)).clamp(0, 1)  # padding has no width, nor any rise
        return (low + part * (high - low)).T.log()


class Steps(OneVersusRest):
    """A step function of s: `edges` (C, M) between the bins, `values` (C, M + 1) inside them."""

    shapes: ClassVar = {"edges": "CM", "values": "CM+1", "pseudo": ""}

    def _answer(self, odds: Odds, parameters: Parameters) -> Tensor:
        index = torch.searchsorted(parameters["edges"].contiguous(), odds.log_odds.T.contiguous())  # (lo, hi]
        return parameters["values"].gather(1, index).T.log()


class Histogram(Steps):
    """Histogram binning [Zadrozny01]: the share of positives in the bin that s falls into.

    Args:
        bins: how many a class.
        scheme: "width", equal in probability, where an empty bin answers with its middle; or "mass", as many samples
            in each, which needs many more bins than classes: the top 1 / K of the samples should fill several.
        smoothing: as in every one-versus-rest method.
    """

    method = "histogram"

    def __init__(self, *, bins: int = 15, scheme: str = "width", smoothing: float = 1.0) -> None:
        super().__init__(smoothing=smoothing)
        positive_int("bins", bins)
        one_of("scheme", scheme, SCHEMES)
        self.options = {"bins": bins, "scheme": scheme, "smoothing": smoothing}

    def _fit_binary(self, odds: Odds, truth: Tensor) -> Fitted:
        bins = self.options["bins"]
        edges, values = [], []
        for score, hit in zip(odds.log_odds.T.contiguous(), truth.T.double()):
            if self.options["scheme"] == "width":
                inner = torch.logit(equal_width_edges(bins, device=score.device)[1:-1])
            else:
                ordered = score.sort().values
                inner = edges_between(ordered, cuts(ordered, bins))
            index = torch.bucketize(score, inner)
            count = torch.bincount(index, minlength=len(inner) + 1)
            hits = torch.bincount(index, weights=hit, minlength=len(inner) + 1)
            edges.append(inner)
            values.append(torch.where(count > 0, hits / count.clamp(min=1), middles(inner)))
        return steps(edges, values)


class BBQ(Steps):
    """Bayesian binning into quantiles [Naeini15].

    Every number of equal-mass bins from N^(1/3) / 10 to 10 N^(1/3) is a model, scored by its marginal likelihood
    under a Beta prior in each bin; the answer is the average of the models' answers, weighted by score. As a sum of
    step functions it's a step function again, and stored as one; models that weigh less than 1e-6 of the best are
    left out.

    Args:
        prior: the number of pseudo-samples that a model's prior is worth, spread over its bins.
        smoothing: as in every one-versus-rest method; the prior of a bin near 0 is near 0 too, and adds little.
    """

    method = "bbq"

    def __init__(self, *, prior: float = 2.0, smoothing: float = 1.0) -> None:
        super().__init__(smoothing=smoothing)
        self.options = {"prior": prior, "smoothing": smoothing}

    def _fit_binary(self, odds: Odds, truth: Tensor) -> Fitted:
        tables = [self._fit_one(s, hit) for s, hit in zip(odds.log_odds.T.cpu(), truth.T.double().cpu())]
        return steps([edges for edges, _ in tables], [values for _, values in tables])

    def _fit_one(self, score: Tensor, hit: Tensor) -> tuple[Tensor, Tensor]:
        order = score.argsort()
        ordered = score[order]
        hits = torch.cat([hit.new_zeros(1), hit[order].cumsum(0)])
        root = len(score) ** (1 / 3)
        models = [self._model(ordered, hits, bins) for bins in range(max(1, int(root / 10)), int(10 * root) + 1)]
        scores = torch.stack([log_score for _, _, log_score in models])
        weights = (scores - scores.max()).exp()
        kept = [(*model[:2], float(w)) for model, w in zip(models, weights) if w > 1e-6]
        edges = torch.cat([inner for inner, _, _ in kept]).unique()
        inside = torch.cat([edges, edges[-1:] + 1]) if len(edges) else ordered[:1]  # a point of each merged bin
        total = sum(weight for _, _, weight in kept)
        values = torch.stack([weight / total * v[torch.bucketize(inside, inner)] for inner, v, weight in kept]).sum(
            dim=0
        )
        return edges, values

    def _model(self, ordered: Tensor, hits: Tensor, bins: int) -> tuple[Tensor, Tensor, Tensor]:
        """(edges, values, log marginal likelihood) of one equal-mass binning."""
        where = cuts(ordered, bins)
        edges = edges_between(ordered, where)
        bounds = torch.cat([where.new_zeros(1), where, where.new_tensor([len(ordered)])])
        count, positive = bounds.diff().double(), hits[bounds].diff()
        prior = self.options["prior"] / len(count)
        alpha = (prior * middles(edges)).clamp(min=1e-12)
        beta = (prior - alpha).clamp(min=1e-12)
        log_score = (
            torch.lgamma(alpha + beta)
            - torch.lgamma(count + alpha + beta)
            + torch.lgamma(positive + alpha)
            - torch.lgamma(alpha)
            + torch.lgamma(count - positive + beta)
            - torch.lgamma(beta)
        ).sum()
        return edges, (positive + alpha) / (count + alpha + beta), log_score


def cuts(ordered: Tensor, bins: int) -> Tensor:
    """Where to cut ascending scores into `bins` parts of equal mass; equal scores stay together, so it may be fewer."""
    n = len(ordered)
    wanted = torch.arange(1, bins, device=ordered.device) * n // bins
    moved = torch.searchsorted(ordered, ordered[wanted.clamp(max=n - 1)])  # to the start of a run of equal scores
    return moved[(moved > 0) & (moved < n)].unique()


def edges_between(ordered: Tensor, where: Tensor) -> Tensor:
    """The edges half-way between the scores on both sides of each cut."""
    low, high = ordered[where - 1], ordered[where]
    middle = low + (high - low) / 2
    return torch.where(middle < high, middle, low)  # right-closed: an edge that rounds up to `high` would pull it in


def middles(edges: Tensor) -> Tensor:
    """The middles, as probabilities, of the bins between edges given as log-odds."""
    bounds = torch.cat([edges.new_zeros(1), edges.sigmoid(), edges.new_ones(1)])
    return (bounds[1:] + bounds[:-1]) / 2


def steps(edges: list[Tensor], values: list[Tensor]) -> Fitted:
    """Step functions as tables: a repeated edge makes a bin that nothing falls into, so padding changes no answer."""
    width = max(1, *map(len, edges))
    edges = [row if len(row) else row.new_zeros(1) for row in edges]
    return Fitted({"edges": padded(edges, width), "values": padded(values, width + 1)})


def padded(rows: list[Tensor], width: int) -> Tensor:
    """Rows of different lengths as one matrix: each goes on with its last entry."""
    return torch.stack([torch.cat([row, row[-1:].expand(width - len(row))]) for row in rows])
