"""Every shipped recipe: it loads, it explains itself, and it takes two steps on the CPU."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from calgrad.checks import FileError, InputError
from calgrad.data import SplitIndices, Splits, TensorPart, find_spec
from calgrad.recipes import list_recipes, load_recipe, recipe_header, recipe_path
from calgrad.train import Recipe
from calgrad.train import run as run_module

PAPER = ["cifar10-paper", "cifar100-paper", "tiny-imagenet-paper"]
# Backbones that come from a hub cannot be fetched in a test: the same kind of network of our own stands in.
STAND_INS = {"timm:resnet50.tv_in1k": "resnet50", "hf:google/vit-base-patch16-224": "resnet18"}


def test_the_promised_recipes_are_there():
    promised = {*PAPER, "imagenet-finetune", "vit-finetune", "digits", "gaussians"}
    shipped = set(list_recipes())
    assert promised <= shipped
    assert {"cifar10-short", "cifar100-short", "tiny-imagenet-short", "imagenet-short"} <= shipped


@pytest.mark.parametrize("name", list_recipes())
def test_a_recipe_opens_with_command_time_and_number(name):
    header = recipe_header(name)
    assert f"calgrad train {name}" in header or f"calgrad compare {name}" in header
    assert "Time:" in header
    assert "Reached:" in header
    recipe = load_recipe(name)
    assert recipe.name == name
    assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("name", PAPER)
def test_paper_recipes_carry_what_was_published(name):
    recipe = load_recipe(name)
    assert (recipe.reduction, recipe.clip, recipe.seeds) == ("sum", 2.0, (1, 42, 71))
    assert (recipe.optimiser, recipe.lr, recipe.momentum, recipe.weight_decay) == ("sgd", 0.1, 0.9, 5e-4)
    assert (recipe.ema, recipe.warmup, recipe.augment) == (None, 0.0, "crop-flip")
    if name.startswith("cifar"):
        assert (recipe.epochs, recipe.milestones, recipe.batch, recipe.split) == (350, (150, 250), 128, "paper")
    else:
        assert (recipe.epochs, recipe.milestones, recipe.batch, recipe.split) == (100, (40, 60), 64, "seeded")


def stand_in_data(name: str, samples: int = 4) -> Splits:
    """A handful of random samples in the official shape."""
    spec = find_spec(name)
    generator = torch.Generator().manual_seed(0)
    if spec.image_size > 1:
        images = torch.randint(256, (samples, *spec.input_shape), generator=generator, dtype=torch.uint8)
    else:
        images = torch.randn((samples, *spec.input_shape), generator=generator)
    # ImageNet's crops are made by the workers, from files.
    spec = dataclasses.replace(spec, resized_crop=False)
    labels = torch.randint(spec.class_count, (samples,), generator=generator)
    part = TensorPart(spec, images, labels, torch.arange(samples))
    return Splits(spec, part, part, part, SplitIndices([0, 1], [2, 3]))


@pytest.mark.parametrize("name", list_recipes())
def test_two_steps_on_the_cpu(name, monkeypatch, build):
    recipe = load_recipe(name).replace(batch=2, workers=0)
    if recipe.model in STAND_INS:
        recipe = recipe.replace(model=STAND_INS[recipe.model], model_options={})
    monkeypatch.setattr(run_module, "load_data", lambda name, *_, **__: stand_in_data(name))
    run = build(recipe)
    before = run.net.model.head.weight.detach().clone()
    losses = []
    for size in run.feed.sizes:
        run.step(size)
        losses.append(float(run.step.total))
    assert len(losses) == 2
    assert 0 < losses[0] < losses[1] < 4 * 20  # summed over four samples: near log K each, not exploding
    assert all(math.isfinite(loss) for loss in losses)
    assert not torch.equal(before, run.net.model.head.weight)
    logits = run.logits("test")[0]
    assert logits.shape == (4, run.data.spec.class_count)
    assert torch.isfinite(logits).all()


def test_a_recipe_of_ones_own_and_a_wrong_name(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("# Mine.\n# Second line.\ndata: digits\nmodel: mlp\n")
    assert load_recipe(path).data == "digits"
    assert recipe_header(path) == "Mine.\nSecond line."
    with pytest.raises(InputError, match="Did you mean 'cifar10-paper'"):
        recipe_path("cifar10_paper")
    with pytest.raises(FileError, match="does not exist; shipped ones go by name"):
        load_recipe(tmp_path / "missing.yaml")
