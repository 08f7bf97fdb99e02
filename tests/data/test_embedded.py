"""Digits and Gaussians, which need no download."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from calgrad.checks import InputError
from calgrad.data import gaussian_means, gaussian_posterior, load_data


def test_digits_are_scikit_learns():
    data = load_data("digits")
    source = load_digits()
    for part in (data.train, data.val, data.test):
        assert part.images.dtype == torch.uint8
        assert (part.images[:, 0].numpy() == np.rint(source.images[part.ids] * 255 / 16)).all()
        assert (part.labels.numpy() == source.target[part.ids]).all()
    ids = torch.cat([data.train.ids, data.val.ids, data.test.ids])
    assert ids.sort().values.tolist() == list(range(1797))
    assert data.test.labels.bincount().min() >= 52


def test_the_digits_test_set_never_changes():
    reference = load_data("digits").test.ids
    for options in ({"seed": 5}, {"val_size": 10}, {"stratified": False}):
        assert (load_data("digits", **options).test.ids == reference).all()


def test_digits_statistics_are_those_of_its_training_images():
    data = load_data("digits")
    pixels = torch.cat([data.train.images, data.val.images]).double() / 255
    assert data.spec.mean[0] == pytest.approx(pixels.mean().item(), abs=5e-5)
    assert data.spec.std[0] == pytest.approx(pixels.std().item(), abs=5e-5)


def test_gaussians_are_the_papers_toy():
    data = load_data("gaussians", seed=3)
    assert len(data.train) + len(data.val) == 50_000
    assert data.test.labels.bincount().tolist() == [1000] * 5
    means = gaussian_means(3)
    assert means.abs().max() <= 10
    for k in range(5):
        points = data.train.images[data.train.labels == k].double()
        assert torch.allclose(points.mean(0), means[k], atol=0.05)
        assert torch.allclose(torch.cov(points.T), torch.eye(2, dtype=torch.float64), atol=0.05)
    again, other = load_data("gaussians", seed=3), load_data("gaussians", seed=4)
    assert torch.equal(again.train.images, data.train.images)
    assert not torch.equal(other.test.images, data.test.images)


def test_gaussian_posterior_is_bayes_rule():
    means = gaussian_means(0, classes=4, dimensions=3) / 5
    points = torch.randn(50, 3, dtype=torch.float64) * 2
    density = torch.stack(
        [
            torch.distributions.MultivariateNormal(m, torch.eye(3, dtype=torch.float64)).log_prob(points).exp()
            for m in means
        ],
        1,
    )
    expected = density / density.sum(1, keepdim=True)
    assert torch.allclose(gaussian_posterior(points, means), expected, atol=1e-12)


def test_gaussian_labels_occur_as_often_as_the_posterior_says():
    # Two close classes, so that the posterior is not degenerate.
    means = torch.tensor([[0.0, 0.0], [1.0, 0.5]], dtype=torch.float64)
    labels = torch.arange(2).repeat(50_000)
    generator = torch.Generator().manual_seed(0)
    points = means[labels] + torch.randn(100_000, 2, generator=generator, dtype=torch.float64)
    eta = gaussian_posterior(points, means)[:, 1]
    for low in (0.1, 0.3, 0.5, 0.7):
        chosen = (eta > low) & (eta <= low + 0.2)
        assert labels[chosen].double().mean().item() == pytest.approx(eta[chosen].mean().item(), abs=0.02)


def test_the_exact_posterior_comes_with_the_gaussians():
    data = load_data("gaussians", seed=1)
    eta = gaussian_posterior(data.test.images, gaussian_means(1))
    assert torch.allclose(data.test.soft_labels.double(), eta, atol=1e-7)
    with pytest.raises(InputError, match="agree in D"):
        gaussian_posterior(torch.zeros(3, 2), torch.zeros(4, 3))


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="image_size"):
        load_data("digits", image_size=32)
    with pytest.raises(InputError, match="on_corrupt"):
        load_data("digits", on_corrupt="ignore")
    with pytest.raises(InputError, match="split"):
        load_data("digits", split="random")
