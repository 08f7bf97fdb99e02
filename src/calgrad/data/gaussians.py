"""The paper's toy: five Gaussians in the plane, whose exact posterior is known.

[Lin25] draw the means uniformly from [-10, 10]^2, use the identity as covariance, and take 10,000 training and 1,000
test points of each class. With equal priors Bayes' rule gives the posterior in closed form: a softmax of -|x -
mean|^2 / 2.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from calgrad.checks import InputError, positive_int
from calgrad.data.parts import TensorPart
from calgrad.data.spec import SPECS

__all__ = ["gaussian_means", "gaussian_posterior", "load_gaussians_parts"]

RANGE = 10.0


def gaussian_means(seed: int = 0, *, classes: int = 5, dimensions: int = 2) -> Tensor:
    """(K, D) float64 class means, uniform in [-10, 10]."""
    positive_int("classes", classes)
    positive_int("dimensions", dimensions)
    return torch.from_numpy(np.random.default_rng([seed, 0]).uniform(-RANGE, RANGE, size=(classes, dimensions)))


def gaussian_posterior(points: Tensor, means: Tensor) -> Tensor:
    """The exact class probabilities (N, K) of points (N, D), computed in float64.

    Example:
        >>> import torch
        >>> from calgrad.data import gaussian_posterior
        >>> gaussian_posterior(torch.tensor([[0.0]]), torch.tensor([[-1.0], [1.0]]))
        tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    if points.ndim != 2 or means.ndim != 2 or points.shape[1] != means.shape[1]:
        raise InputError(
            f"`points` (N, D) and `means` (K, D) must agree in D, got {tuple(points.shape)}, {tuple(means.shape)}"
        )
    points, means = points.to(torch.float64), means.to(torch.float64)
    # |x|^2 is the same for every class and cancels.
    return (points @ means.T - 0.5 * means.square().sum(dim=1)).softmax(dim=1)


def load_gaussians_parts(seed: int = 0) -> tuple[TensorPart, TensorPart]:
    """The training and the test part generated from `seed`; `soft_labels` is the exact posterior."""
    spec = SPECS["gaussians"]
    means = gaussian_means(seed, classes=spec.class_count, dimensions=spec.channels)
    parts = []
    for stream, size in ((1, spec.train_size), (2, spec.test_size)):
        labels = torch.arange(spec.class_count).repeat_interleave(size // spec.class_count)
        noise = torch.from_numpy(np.random.default_rng([seed, stream]).standard_normal((size, spec.channels)))
        points = (means[labels] + noise).float()
        eta = gaussian_posterior(points, means).float()
        parts.append(TensorPart(spec, points, labels, torch.arange(size), soft_labels=eta))
    return parts[0], parts[1]
