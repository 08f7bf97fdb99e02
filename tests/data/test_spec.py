from __future__ import annotations

import pytest
import torch

from calgrad.checks import InputError
from calgrad.data import SPECS, find_spec


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda s: s.name)
def test_a_spec_agrees_with_itself(spec):
    assert len(spec.mean) == len(spec.std) == spec.channels
    assert len(spec.classes) in (0, spec.class_count)
    assert len(set(spec.classes)) == len(spec.classes)
    assert 0 <= spec.val_size < max(spec.train_size, 1)
    assert bool(spec.url) == bool(spec.md5) == bool(spec.archive)
    mean, std = spec.channel_stats()
    assert (mean.reshape(-1) == torch.tensor(spec.mean)).all()
    assert (std > 0).all()
    assert torch.broadcast_shapes(mean.shape, (2, *spec.input_shape)) == (2, *spec.input_shape)


def test_both_cifars_are_normalised_as_the_published_runs_were():
    for name in ("cifar10", "cifar100"):
        assert SPECS[name].mean == (0.4914, 0.4822, 0.4465)
        assert SPECS[name].std == (0.2023, 0.1994, 0.2010)


def test_cifar100_names_are_alphabetical_as_in_the_archive():
    names = SPECS["cifar100"].classes
    assert len(names) == 100
    assert list(names) == sorted(names)
    assert names[0] == "apple"
    assert names[53] == "orange"
    assert names[99] == "worm"


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(InputError, match="Did you mean 'cifar10'"):
        find_spec("cifar-10")
    assert find_spec("folder:/some/where").name == "folder"
