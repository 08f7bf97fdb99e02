from __future__ import annotations

import time

import pytest
import torch
from torch.nn import functional as F

from calgrad.checks import InputError
from calgrad.data import batches, load_data
from calgrad.models import MODELS, make_model


def test_unknown_names_and_options_get_the_nearest_one():
    with pytest.raises(InputError, match="Did you mean 'resnet50'"):
        make_model("resnet-50", classes=10, image_size=32)
    with pytest.raises(InputError, match="Did you mean 'wrn-26-10'"):
        make_model("wrn26-10", classes=10, image_size=32)
    with pytest.raises(InputError, match=r"option of model 'mlp' 'hiden'.*Did you mean 'hidden'"):
        make_model("mlp", classes=10, image_size=8, hiden=3)


@pytest.mark.parametrize(
    "wrong", [{"classes": 1}, {"classes": 0}, {"image_size": 0}, {"channels": -1}, {"classes": 2.5}]
)
def test_impossible_shapes_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        make_model("resnet18", **({"classes": 10, "image_size": 32} | wrong))


def test_convolutions_on_feature_vectors_are_refused():
    with pytest.raises(InputError, match="use 'mlp'"):
        make_model("resnet18", classes=5, image_size=1, channels=2)


def test_a_bad_shortcut_is_refused():
    with pytest.raises(InputError, match="shortcut"):
        make_model("resnet110-he", classes=10, image_size=32, shortcut="C")


@pytest.mark.parametrize("entry", MODELS.values(), ids=lambda e: e.name)
def test_every_entry_says_what_it_is(entry):
    assert entry.summary
    assert MODELS[entry.name] is entry


@pytest.mark.parametrize(("name", "epochs", "least"), [("mlp", 20, 0.96), ("cnn", 10, 0.97)])
def test_small_nets_learn_digits_in_a_moment(name, epochs, least):
    data = load_data("digits")
    torch.manual_seed(1)
    model = make_model(name, classes=10, image_size=8, channels=1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=epochs * 16)
    start = time.process_time()
    for epoch in range(epochs):
        for images, labels, _ in batches(data.train, 64, epoch=epoch, shuffle=True):
            optimiser.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimiser.step()
            schedule.step()
    seconds = time.process_time() - start
    model.eval()
    with torch.no_grad():
        images, labels, _ = next(batches(data.test, 1000))
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    assert accuracy >= least
    assert seconds < 10  # about one on a quiet core
