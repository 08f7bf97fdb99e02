"""The table of losses: complete, right against the slow reference, and each loss's repr rebuilds it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import calgrad.losses
from calgrad import InputError
from calgrad.losses import COMMON_OPTIONS, LOSSES, Loss, WeightedCE, make_loss
from tests.reference import losses as reference

NAMES = [
    "ce", "focal", "focal-gra", "flsd53", "flsd53-gra", "dual", "dual-gra", "bsce", "bsce-gra", "consistency-gra",
    "ece-ce", "brier", "mse", "mmce", "mmce-weighted", "label-smoothing", "inverse-focal", "soft-ece", "avuc", "adafocal",
]  # fmt: skip
KIND = {"ce": "one", "adafocal": "focal", "label-smoothing": "label-smoothing"}
PER_SAMPLE = [n for n in NAMES if n not in ("consistency-gra", "ece-ce", "mmce", "mmce-weighted", "soft-ece", "avuc")]
VARIANTS = [
    *((name, {}) for name in NAMES),
    ("bsce-gra", {"gamma": 2.5, "beta": 1.5}),
    ("focal", {"gamma": 0.5, "weight": torch.tensor([0.1, 1.0, 2.0]), "reduction": "sum"}),
    ("ce", {"weight": torch.tensor([1 / 3, 1.0, 2.0], dtype=torch.float64), "ignore_index": -1}),
    ("dual-gra", {"label_smoothing": 0.1, "ignore_index": 7}),
    ("avuc", {"threshold": 0.3}),
    ("adafocal", {"on": "gradient", "bins": 5}),
]


def test_the_table_holds_every_loss():
    assert sorted(LOSSES) == sorted(NAMES)
    for name, entry in LOSSES.items():
        assert entry.name == name
        assert all((entry.formula, entry.summary, entry.reference))
        assert isinstance(make_loss(name), Loss)


@pytest.mark.parametrize("name", PER_SAMPLE)
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_values_are_those_of_the_formula(name, classes):
    logits, labels = 3 * torch.randn(30, classes, dtype=torch.float64), torch.randint(0, classes, (30,))
    options = {k: v for k, v in LOSSES[name].defaults.items() if k in ("gamma", "beta", "label_smoothing")}
    kind = KIND.get(name, name.removesuffix("-gra"))
    expected = reference.per_sample(kind, logits.numpy(), labels.numpy(), **options)
    np.testing.assert_allclose(make_loss(name, reduction="none")(logits, labels), expected, rtol=1e-10)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=lambda v: v if isinstance(v, str) else ",".join(v))
def test_the_representation_rebuilds_the_loss(name, options, loss_arguments):
    loss = make_loss(name, **options)
    names = {key: getattr(calgrad.losses, key) for key in calgrad.losses.__all__} | {"torch": torch}
    again = eval(repr(loss), names)
    assert repr(again) == repr(loss)
    assert type(again) is type(loss)
    assert {k: str(v) for k, v in again.state_dict().items()} == {k: str(v) for k, v in loss.state_dict().items()}
    logits = torch.randn(9, 3)
    labels, extra = torch.randint(0, 3, (9,)), loss_arguments(name, logits)
    torch.testing.assert_close(again(logits, labels, *extra), loss(logits, labels, *extra), rtol=0, atol=0)


def test_by_name_and_by_object_are_one():
    assert repr(make_loss("bsce-gra", gamma=4, beta=2)) == "WeightedCE(BrierNorm(beta=2) ** 4, on='gradient')"
    by_object = WeightedCE(calgrad.losses.BrierNorm(beta=2) ** 4, on="gradient")
    logits, labels = torch.randn(9, 3), torch.randint(0, 3, (9,))
    assert make_loss("bsce-gra")(logits, labels) == by_object(logits, labels)


def test_unknown_names_and_options_list_the_known_ones():
    with pytest.raises(InputError, match=r"Did you mean 'bsce-gra'\?.*adafocal.*soft-ece"):
        make_loss("bsce_gra")
    with pytest.raises(InputError, match=r"'focal'.*'gama'.*Did you mean 'gamma'.*label_smoothing"):
        make_loss("focal", gama=2)
    with pytest.raises(InputError, match="beta"):
        make_loss("focal", beta=2)


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_takes_the_common_options(name, loss_arguments):
    options = {"weight": torch.ones(3), "ignore_index": -7, "reduction": "sum", "label_smoothing": 0.1}
    assert set(options) == set(COMMON_OPTIONS)
    loss = make_loss(name, **options)
    assert (loss.reduction, loss.ignore_index, loss.label_smoothing) == ("sum", -7, 0.1)
    logits = torch.randn(4, 3)
    assert loss(logits, torch.tensor([0, 1, 2, -7]), *loss_arguments(name, logits)).isfinite()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("focal", {"gamma": -1}),
        ("bsce", {"beta": 0}),
        ("mmce", {"width": 0}),
        ("mmce", {"strength": -1}),
        ("soft-ece", {"bins": 0}),
        ("soft-ece", {"temperature": 0}),
        ("avuc", {"threshold": -1.0}),
        ("ece-ce", {"floor": 0}),
        ("adafocal", {"gamma": 0.1}),
        ("adafocal", {"gamma_min": 1.0}),
        ("adafocal", {"on": "both"}),
    ],
)
def test_options_out_of_range_are_refused(name, options):
    with pytest.raises(InputError, match=next(iter(options))):
        make_loss(name, **options)
