"""The link as a calibrator: it undoes the loss that the minimiser was distorted by."""

from __future__ import annotations

import math

import pytest
import torch

from calgrad.checks import InputError
from calgrad.losses import make_loss, posterior
from calgrad.posthoc import CalibrationWarning, load_calibrator, make_calibrator
from calgrad.posthoc.link import minimum
from tests.posthoc.conftest import sample


def trained(loss, n=4000, classes=3):
    """Logits of a minimiser of the loss, the posterior that they encode, and labels drawn from it."""
    generator = torch.Generator().manual_seed(0)
    logits = 0.5 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    eta = posterior(make_loss(loss), logits.softmax(1))
    return logits, eta, torch.multinomial(eta, 1, generator=generator)[:, 0]


@pytest.mark.parametrize("loss", ["bsce-gra", "focal-gra", "focal", "dual-gra", "flsd53-gra"])
def test_link_beats_every_temperature_on_a_minimiser_of_its_loss(loss):
    logits, eta, labels = trained(loss)
    link = make_calibrator("link", loss=loss).fit(logits, labels)
    assert torch.allclose(link(logits), eta, atol=1e-10)
    assert link.parameters == {}
    best = -eta.gather(1, labels[:, None]).log().mean().item()
    assert link.report.nll_after == pytest.approx(best, abs=1e-10)
    assert link.report.nll_after < link.report.nll_before - 0.02
    assert link.report.nll_after < make_calibrator("temperature").fit(logits, labels).report.nll_after


@pytest.mark.parametrize("factor", [0.3, 1.0, 2.5])
def test_link_temperature_undoes_a_factor_of_the_logits_too(factor):
    logits, eta, labels = trained("bsce-gra")
    calibrator = make_calibrator("link-temperature", loss="bsce-gra").fit(factor * logits, labels)
    assert calibrator.temperature == pytest.approx(factor, rel=0.05)
    assert (calibrator(factor * logits) - eta).abs().mean() < 0.01
    best = -eta.gather(1, labels[:, None]).log().mean().item()
    assert best - 2e-3 < calibrator.report.nll_after <= best
    for away in (0.98, 1.02):  # the found T is the minimum of the composed map
        there = posterior(make_loss("bsce-gra"), (factor * logits / (away * calibrator.temperature)).softmax(1))
        assert -there.gather(1, labels[:, None]).log().mean() > calibrator.report.nll_after


def test_in_two_classes_the_focal_link_is_a_temperature():
    logits, labels = sample(100, 2)
    with pytest.warns(CalibrationWarning):
        link = make_calibrator("link", loss="focal-gra", loss_options={"gamma": 3}).fit(logits, labels)
    assert torch.allclose(link(logits), (4 * logits).softmax(1), atol=1e-9)


@pytest.mark.parametrize("name", ["link", "link-temperature"])
def test_the_link_of_cross_entropy_changes_nothing_more_than_temperature(name):
    logits, labels = sample(500, 4)
    calibrator = make_calibrator(name, loss="ce").fit(2 * logits, labels)
    expected = make_calibrator("identity" if name == "link" else "temperature").fit(2 * logits, labels)
    assert torch.allclose(calibrator(2 * logits), expected(2 * logits), atol=1e-6)


def test_loss_by_object_and_by_name_agree_and_only_the_name_is_saved(tmp_path):
    logits, labels = sample(200, 3)
    with pytest.warns(CalibrationWarning):
        named = make_calibrator("link", loss="bsce-gra", loss_options={"gamma": 4}).fit(logits, labels)
    with pytest.warns(CalibrationWarning):
        given = make_calibrator("link", loss=make_loss("bsce-gra", gamma=4)).fit(logits, labels)
    assert torch.equal(named(logits), given(logits))
    named.save(tmp_path / "link.json")
    assert torch.equal(load_calibrator(tmp_path / "link.json")(logits), named(logits))
    with pytest.raises(InputError, match="make it by name"):
        given.save(tmp_path / "object.json")


def test_refusals():
    with pytest.raises(InputError, match="which"):
        make_calibrator("link")
    with pytest.raises(InputError, match="unknown loss"):
        make_calibrator("link", loss="bsce-grad")
    with pytest.raises(InputError, match="object"):
        make_calibrator("link", loss=make_loss("ce"), loss_options={"gamma": 2})
    logits, labels = sample(20, 3)
    with pytest.raises(InputError, match="posterior"):
        make_calibrator("link", loss="mmce").fit(logits, labels)


def test_minimum_finds_the_lower_of_two_valleys_and_says_when_there_is_none_inside():
    found, inside = minimum(lambda u: math.cos(3 * u) + 0.1 * u, -2, 2)
    assert inside
    assert found == pytest.approx(-math.pi / 3 - math.asin(1 / 30) / 3, abs=1e-6)
    end, inside = minimum(lambda u: u, -1, 1)
    assert not inside
    assert end == -1
