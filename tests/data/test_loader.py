from __future__ import annotations

import itertools

import pytest
import torch

from calgrad.checks import InputError
from calgrad.data import Augment, FolderPart, TensorPart, batches, find_spec, load_data, make_batch, plan_epoch

FULL = Augment(crop_pad=2, flip=True, mixup=0.4, augmix=True)


@pytest.fixture(scope="module")
def part() -> TensorPart:
    spec = find_spec("cifar10")
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (53, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return TensorPart(spec, images, torch.arange(53) % 10, torch.arange(53) + 1000)


def collect(part, size, **options):
    found = list(batches(part, size, **options))
    return tuple(torch.cat([batch[i] for batch in found]) for i in range(3)), [len(b.ids) for b in found]


def test_evaluation_is_in_order_without_duplicates(part):
    (images, labels, ids), sizes = collect(part, 10)
    assert ids.tolist() == list(range(1000, 1053))
    assert torch.equal(labels, part.labels)
    assert sizes == [10, 10, 10, 10, 10, 3]
    mean, std = part.spec.channel_stats()
    assert torch.allclose(images, (part.images.float() / 255 - mean) / std)
    assert collect(part, 10, drop_last=True)[1] == [10] * 5


def test_every_epoch_is_a_new_permutation_of_everything(part):
    orders = [collect(part, 16, shuffle=True, seed=1, epoch=e)[0][2] for e in range(3)]
    assert all(order.sort().values.tolist() == list(range(1000, 1053)) for order in orders)
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(collect(part, 16, shuffle=True, seed=2)[0][2], orders[0])
    _, labels, ids = collect(part, 16, shuffle=True, seed=1)[0]
    assert torch.equal(labels, (ids - 1000) % 10)


@pytest.mark.parametrize("augment", [None, Augment(crop_pad=2, flip=True), FULL], ids=["none", "crop", "all"])
def test_an_epoch_is_a_pure_function_of_seed_and_epoch(part, augment):
    def epoch(seed, number):
        return collect(part, 16, shuffle=True, augment=augment, seed=seed, epoch=number)[0]

    first = epoch(3, 7)
    torch.rand(5)  # the global generator has no say
    assert all(torch.equal(a, b) for a, b in zip(first, epoch(3, 7)))
    if augment is not None:
        assert not torch.equal(first[0], epoch(3, 8)[0])


@pytest.mark.parametrize("augment", [None, FULL], ids=["none", "all"])
@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_the_same_global_batches(part, augment, world):
    options = {"shuffle": True, "augment": augment, "seed": 1, "epoch": 2}
    whole = list(batches(part, 16, **options))
    shares = [list(batches(part, 16, rank=rank, world=world, **options)) for rank in range(world)]
    for index, batch in enumerate(whole):
        for i in range(3):
            joined = torch.cat([share[index][i] for share in shares])
            assert torch.allclose(joined.double(), batch[i].double(), atol=1e-4)
        sizes = [len(share[index].ids) for share in shares]
        assert max(sizes) - min(sizes) <= 1


def test_switching_one_augmentation_on_leaves_the_others_as_they_were():
    options = {"seed": 4, "epoch": 5, "batch_size": 8}
    plain = plan_epoch(40, augment=Augment(crop_pad=4, flip=True), **options)
    mixed = plan_epoch(40, augment=Augment(crop_pad=4, flip=True, mixup=1.0, augmix=True), **options)
    for name in ("order", "offsets", "flips"):
        assert torch.equal(getattr(plain, name), getattr(mixed, name))


def test_draws_have_the_right_distribution():
    plan = plan_epoch(20_000, seed=0, epoch=0, batch_size=128, augment=Augment(crop_pad=4, flip=True, mixup=0.2))
    assert plan.offsets.unique().tolist() == list(range(9))
    assert plan.offsets.float().mean().item() == pytest.approx(4.0, abs=0.1)
    assert plan.flips.float().mean().item() == pytest.approx(0.5, abs=0.02)
    for batch in plan.lam.split(128):  # one weight a batch
        assert (batch == batch[0]).all()
    per_sample = plan_epoch(20_000, seed=0, epoch=0, batch_size=128, augment=Augment(mixup=0.2, mixup_per="sample"))
    assert per_sample.lam.mean().item() == pytest.approx(0.5, abs=0.02)
    assert per_sample.lam.var().item() == pytest.approx(1 / (4 * (2 * 0.2 + 1)), abs=0.01)  # of Beta(a, a)


def test_mixup_partners_stay_within_the_batch():
    plan = plan_epoch(21, seed=0, epoch=0, batch_size=8, augment=Augment(mixup=1.0))
    assert plan.partner.tolist() == [*range(1, 8), 0, *range(9, 16), 8, *range(17, 21), 16]


def test_mixup_gives_soft_labels(part):
    labels = next(batches(part, 16, shuffle=True, augment=Augment(mixup=1.0))).labels
    assert labels.shape == (16, 10)
    assert torch.allclose(labels.sum(1), torch.ones(16))
    assert (labels > 0).sum(1).max() == 2


def test_a_plan_can_be_refilled_in_place(part):
    augment = Augment(crop_pad=2, flip=True)
    plans = [plan_epoch(53, seed=0, epoch=e, batch_size=16, augment=augment) for e in (0, 1)]
    kept, address = plans[0], plans[0].offsets.data_ptr()
    kept.copy_(plans[1])
    assert kept.offsets.data_ptr() == address
    mean, std = part.spec.channel_stats()
    position = torch.arange(16)
    ours, theirs = (make_batch(part, p, position, augment=augment, mean=mean, std=std) for p in (kept, plans[1]))
    assert torch.equal(ours.images, theirs.images)
    assert torch.equal(ours.ids, theirs.ids)


def test_batches_of_features():
    data = load_data("gaussians")
    images, labels, _ = next(batches(data.test, 7))
    assert torch.equal(images, data.test.images[:7])
    assert torch.equal(labels, data.test.labels[:7])


def test_wrong_arguments(part):
    with pytest.raises(InputError, match="rank"):
        next(batches(part, 8, rank=2, world=2))
    with pytest.raises(InputError, match="batch_size"):
        next(batches(part, 0))
    with pytest.raises(InputError, match="resized_crop"):
        next(batches(part, 8, augment=Augment(resized_crop=True)))
    with pytest.raises(InputError, match="shape"):
        TensorPart(part.spec, part.images[:, :1], part.labels, part.ids)
    with pytest.raises(InputError, match=r"\[0, 10\)"):
        TensorPart(part.spec, part.images, part.labels + 1, part.ids)
    with pytest.raises(InputError, match="one entry an image"):
        FolderPart(part.spec, (), part.labels, part.ids)
    assert list(batches(part.take([]), 4)) == []


@pytest.mark.gpu
def test_a_batch_can_be_made_inside_a_cuda_graph(part):
    device, augment = torch.device("cuda"), FULL
    there = part.to(device)
    mean, std = part.spec.channel_stats(device)
    plan = plan_epoch(53, seed=0, epoch=0, batch_size=16, augment=augment, device=device)
    positions = torch.arange(16, device=device)
    make = lambda: make_batch(there, plan, positions, augment=augment, mean=mean, std=std)  # noqa: E731
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            make()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = make()
    for start, epoch in itertools.product((0, 16), (0, 3)):
        plan.copy_(plan_epoch(53, seed=0, epoch=epoch, batch_size=16, augment=augment, device=device))
        positions.copy_(torch.arange(start, start + 16))
        graph.replay()
        eager = make()
        assert torch.equal(captured.ids, eager.ids)
        assert torch.allclose(captured.images, eager.images, atol=1e-4)
        assert torch.allclose(captured.labels, eager.labels)
