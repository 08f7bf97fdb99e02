from __future__ import annotations

import pytest
import torch

from calgrad.data import SPECS, Augment, TensorPart
from calgrad.train import Recipe
from calgrad.train.distributed import Group
from calgrad.train.feed import DeviceFeed, augmentation, batch_sizes


def numbered(samples: int = 23) -> TensorPart:
    """Images whose every pixel is their own number."""
    images = torch.arange(samples, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 32, 32).contiguous()
    return TensorPart(SPECS["cifar10"], images, torch.arange(samples) % 10, torch.arange(samples))


def seen(feed: DeviceFeed, sizes: list[int]) -> list[int]:
    """The numbers of the samples that come out, read off the normalised pixels."""
    found: list[int] = []
    for size in sizes:
        x, labels = feed.take(size)
        number = (x[:, 0, 16, 16] * feed.std.flatten()[0] + feed.mean.flatten()[0]) * 255
        assert torch.equal(labels, number.round().long() % 10)
        found += number.round().long().tolist()
        feed.advance(size)
    return found


RECIPE = Recipe(data="cifar10", model="mlp", batch=5, augment="crop-flip")


@pytest.mark.parametrize(("samples", "batch", "expected"), [(300, 128, [128, 128, 44]), (4, 8, [4]), (8, 4, [4, 4])])
def test_batch_sizes(samples, batch, expected):
    assert batch_sizes(samples, batch) == expected
    assert sum(expected) == samples


def test_an_epoch_shows_every_sample_once_and_the_next_another_order():
    feed = DeviceFeed(numbered(), RECIPE, seed=3, group=Group())
    feed.start(0)
    first = seen(feed, feed.sizes)
    feed.start(1)
    second = seen(feed, feed.sizes)
    assert sorted(first) == sorted(second) == list(range(23))
    assert first != second


def test_an_epoch_is_a_function_of_seed_and_epoch_alone():
    one, other = (DeviceFeed(numbered(), RECIPE, seed=3, group=Group()) for _ in range(2))
    one.start(0)
    seen(one, one.sizes)
    one.start(4)
    other.start(4)
    for size in one.sizes:
        torch.testing.assert_close(one.take(size)[0], other.take(size)[0], rtol=0, atol=0)
        one.advance(size)
        other.advance(size)


def test_starting_within_an_epoch_gives_the_rest_of_it():
    feed = DeviceFeed(numbered(), RECIPE, seed=3, group=Group())
    feed.start(2)
    whole = seen(feed, feed.sizes)
    feed.start(2, step=3)
    assert seen(feed, feed.sizes[3:]) == whole[15:]


def test_processes_share_the_same_global_batches():
    alone = DeviceFeed(numbered(), RECIPE, seed=3, group=Group())
    alone.start(0)
    shares = [DeviceFeed(numbered(), RECIPE, seed=3, group=Group(rank, 3)) for rank in range(3)]
    for share in shares:
        share.start(0)
    for size in alone.sizes:
        parts = [share.take(size)[0][: share.group.bounds(size)[1] - share.group.bounds(size)[0]] for share in shares]
        torch.testing.assert_close(torch.cat(parts), alone.take(size)[0], rtol=0, atol=0)
        for feed in (alone, *shares):
            feed.advance(size)


def test_a_process_without_a_share_still_has_a_row():
    group = Group(0, 8)  # 3 samples for 8 processes: the first one's share is empty
    assert group.bounds(3) == (0, 0)
    feed = DeviceFeed(numbered(), RECIPE, seed=3, group=group)
    feed.start(0, step=4)
    assert feed.take(3)[0].shape == (1, 3, 32, 32)


def test_what_the_words_mean():
    cifar, digits = SPECS["cifar10"], SPECS["digits"]
    assert augmentation(RECIPE, cifar) == Augment(crop_pad=4, flip=True)
    assert augmentation(RECIPE, digits) == Augment()  # a mirrored digit is another one
    assert augmentation(RECIPE.replace(augment="augmix"), cifar) == Augment(crop_pad=4, flip=True, augmix=True)
    assert augmentation(RECIPE.replace(augment="none", mixup=0.2), cifar) == Augment(mixup=0.2)


def test_mixup_gives_soft_labels():
    feed = DeviceFeed(numbered(), RECIPE.replace(mixup=0.4), seed=3, group=Group())
    feed.start(0)
    labels = feed.take(5)[1]
    assert labels.shape == (5, 10)
    torch.testing.assert_close(labels.sum(dim=1), torch.ones(5))
