"""Tiny-ImageNet, ImageNet and any folder: layouts, lazy decoding, damaged images."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from calgrad.checks import FileError, InputError
from calgrad.data import Augment, FolderPart, TensorPart, batches, find_spec, load_data
from calgrad.data.files import centre_crop, decode_batches, random_resized_crop
from tests.data.official import WNIDS, jpeg, jpeg_bytes, shrink, write_class_folders, write_tiny_imagenet


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    shrink(monkeypatch, "tiny-imagenet", 24, 8, classes=4)
    return write_tiny_imagenet(tmp_path)


def test_tiny_imagenet_validation_comes_out_of_train(tiny):
    data = load_data("tiny-imagenet", tiny.parent, val_size=4, workers=0)
    assert (len(data.train), len(data.val), len(data.test)) == (20, 4, 8)
    assert data.val.labels.bincount().tolist() == [1, 1, 1, 1]
    assert not set(data.train.ids.tolist()) & set(data.val.ids.tolist())
    # Classes are numbered by sorted wnid; the test images are those of the official val folder.
    assert data.test.labels.tolist() == [(3 * i + 1) % 4 for i in range(8)]
    assert data.spec.classes == ("name 0", "name 1", "name 2", "name 3")
    assert data.test.images.shape == (8, 3, 64, 64)
    red = data.test.images[:, 0].float().mean(dim=(1, 2))
    assert torch.allclose(red, 60.0 * data.test.labels, atol=4)


def test_tiny_imagenet_is_decoded_once(tiny, monkeypatch):
    first = load_data("tiny-imagenet", tiny.parent, workers=0)
    assert (tiny / ".calgrad" / "train.npy").is_file()
    assert not list((tiny / ".calgrad").glob("*.part"))
    with monkeypatch.context() as patched:
        patched.setattr("calgrad.data.memory.decode_batches", None)  # would fail if called
        again = load_data("tiny-imagenet", tiny.parent)
    assert torch.equal(first.train.images, again.train.images)
    # A changed image makes the cache anew.
    changed = tiny / "train" / WNIDS[2] / "images" / f"{WNIDS[2]}_0.JPEG"
    jpeg(changed, colour=255, mode="L")
    renewed = load_data("tiny-imagenet", tiny.parent, workers=0, val_size=1, seed=0)
    row = torch.cat([renewed.train.ids, renewed.val.ids]).tolist().index(12)
    images = torch.cat([renewed.train.images, renewed.val.images])
    assert images[row].min() > 250


@pytest.mark.parametrize("workers", [0, 2])
def test_tiny_imagenet_with_a_damaged_image(tiny, workers):
    bad = tiny / "train" / WNIDS[1] / "images" / f"{WNIDS[1]}_3.JPEG"
    bad.write_bytes(jpeg_bytes()[:900])
    with pytest.raises(FileError, match=f"{WNIDS[1]}_3.JPEG cannot be decoded"):
        load_data("tiny-imagenet", tiny.parent, workers=workers)
    for _ in range(2):  # decoded, then from the cache
        data = load_data("tiny-imagenet", tiny.parent, workers=workers, on_corrupt="skip", val_size=3)
        ids = sorted(data.train.ids.tolist() + data.val.ids.tolist())
        assert ids == [i for i in range(24) if i != 9]
        assert torch.cat([data.train.labels, data.val.labels]).bincount().tolist() == [6, 5, 6, 6]


def test_broken_tiny_imagenet_layouts_are_named(tiny):
    annotations = tiny / "val" / "val_annotations.txt"
    text = annotations.read_text()
    for damaged, message in (
        (text.replace(WNIDS[0], "n00000000"), "line"),
        (text.replace("val_0.JPEG", "../../train/x.JPEG"), "line 1"),
        (text.replace("\t", " "), "line 1"),
        ("\n".join(text.splitlines()[:-1]), "has 7 images"),
        (text.replace("val_3.JPEG", "val_33.JPEG"), "val_33.JPEG"),
    ):
        annotations.write_text(damaged)
        with pytest.raises(FileError, match=message):
            load_data("tiny-imagenet", tiny.parent, workers=0)
    annotations.write_text(text)
    (tiny / "wnids.txt").write_text("\n".join(WNIDS[:3]))
    with pytest.raises(FileError, match="4 distinct classes, got 3"):
        load_data("tiny-imagenet", tiny.parent)
    (tiny / "wnids.txt").unlink()
    with pytest.raises(FileError, match=r"wnids\.txt"):
        load_data("tiny-imagenet", tiny.parent)


@pytest.fixture
def imagenet(tmp_path):
    root = tmp_path / "imagenet"
    write_class_folders(root / "train", WNIDS, 5)
    write_class_folders(root / "val", WNIDS, 2)
    return root


def test_imagenet_in_folders(imagenet):
    for root in (imagenet, imagenet.parent):
        data = load_data("imagenet", root, val_size=4, image_size=32)
        assert isinstance(data.train, FolderPart)
        assert (len(data.train), len(data.val), len(data.test)) == (16, 4, 8)
        assert data.spec.classes == tuple(WNIDS)
        assert data.test.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        assert all("val" in path.parts for path in data.test.paths)
        assert all("train" in path.parts for path in (*data.train.paths, *data.val.paths))


@pytest.mark.parametrize("kind", ["LOC_val_solution.csv", "val_annotations.txt", "synset_labels.txt"])
def test_imagenet_with_a_flat_val_folder(imagenet, tmp_path, kind):
    flat = []
    for i, path in enumerate(sorted((imagenet / "val").rglob("*.JPEG"), key=lambda p: p.stem[::-1])):
        name = f"ILSVRC2012_val_{i:08d}.JPEG"
        flat.append((name, path.parent.name))
        path.rename(imagenet / "val" / name)
    for wnid in WNIDS:
        (imagenet / "val" / wnid).rmdir()
    with pytest.raises(FileError, match="no labels"):
        load_data("imagenet", imagenet)
    if kind == "LOC_val_solution.csv":
        rows = [
            "ImageId,PredictionString",
            *(f"{n.removesuffix('.JPEG')},{w} 1 2 3 4 {w} 5 6 7 8" for n, w in flat[::-1]),
        ]
    elif kind == "val_annotations.txt":
        rows = [f"{name} {wnid}" for name, wnid in flat[::-1]]
    else:
        rows = [wnid for _, wnid in flat]
    (imagenet / kind).write_text("\n".join(rows) + "\n")
    data = load_data("imagenet", imagenet)
    assert [(path.name, WNIDS[label]) for path, label in zip(data.test.paths, data.test.labels.tolist())] == flat
    (imagenet / kind).write_text("\n".join(rows[:-1]) + "\n")
    with pytest.raises(FileError, match=kind):
        load_data("imagenet", imagenet)


def test_missing_imagenet_says_where_it_looked(tmp_path):
    with pytest.raises(FileError, match=r"imagenet/train.*no public download"):
        load_data("imagenet", tmp_path)


def test_any_folder_in_its_three_layouts(tmp_path):
    classes = ["cat", "dog", "owl"]
    write_class_folders(tmp_path / "plain", classes, 10)
    data = load_data(f"folder:{tmp_path / 'plain'}", image_size=16)
    assert data.spec.classes == tuple(classes)
    assert data.test.labels.bincount().tolist() == [2, 2, 2]
    assert len(data.train) + len(data.val) == 24
    assert set(data.test.paths).isdisjoint(data.train.paths + data.val.paths)
    write_class_folders(tmp_path / "two" / "train", classes, 5)
    write_class_folders(tmp_path / "two" / "val", classes, 2)
    data = load_data(f"folder:{tmp_path / 'two'}", val_fraction=0.2)
    assert (len(data.train), len(data.val), len(data.test)) == (12, 3, 6)
    write_class_folders(tmp_path / "two" / "test", classes, 3)
    data = load_data(f"folder:{tmp_path / 'two'}")
    assert (len(data.train), len(data.val), len(data.test)) == (15, 6, 9)
    assert all("val" in path.parts for path in data.val.paths)


def test_wrong_folders_are_named(tmp_path):
    with pytest.raises(FileError, match="not a folder"):
        load_data(f"folder:{tmp_path / 'absent'}")
    (tmp_path / "one" / "cat").mkdir(parents=True)
    with pytest.raises(FileError, match="at least two classes, got 1"):
        load_data(f"folder:{tmp_path / 'one'}")
    (tmp_path / "one" / "dog").mkdir()
    with pytest.raises(FileError, match="cat holds no images"):
        load_data(f"folder:{tmp_path / 'one'}")
    write_class_folders(tmp_path / "more" / "train", ["a", "b"], 2)
    with pytest.raises(FileError, match="neither test nor val"):
        load_data(f"folder:{tmp_path / 'more'}")
    write_class_folders(tmp_path / "more" / "test", ["a", "c"], 2)
    with pytest.raises(FileError, match="training folder does not have"):
        load_data(f"folder:{tmp_path / 'more'}")


@pytest.fixture
def pictures(tmp_path):
    write_class_folders(tmp_path / "p", ["cat", "dog"], 12, size=(50, 40))
    return load_data(f"folder:{tmp_path / 'p'}", image_size=16, val_size=2)


@pytest.mark.parametrize("augment", [None, "usual", "mixup"])
def test_batches_from_files_do_not_depend_on_the_workers(pictures, augment):
    usual = Augment.usual(pictures.spec, mixup=0.5 if augment == "mixup" else 0.0)
    options = {"augment": None if augment is None else usual, "shuffle": True, "seed": 1, "epoch": 2}
    alone = list(batches(pictures.train, 5, workers=0, **options))
    helped = list(batches(pictures.train, 5, workers=2, **options))
    for a, b in zip(alone, helped, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b))
        assert a.images.shape[1:] == (3, 16, 16)
    ids = torch.cat([batch.ids for batch in alone])
    assert ids.sort().values.tolist() == pictures.train.ids.sort().values.tolist()
    if augment == "mixup":
        assert alone[0].labels.shape == (5, 2)
    else:
        rows = {int(i): int(label) for i, label in zip(pictures.train.ids, pictures.train.labels)}
        assert torch.cat([b.labels for b in alone]).tolist() == [rows[int(i)] for i in ids]


def test_folder_batches_are_shared_between_processes(pictures):
    whole = list(batches(pictures.test, 4, workers=0))
    shares = [list(batches(pictures.test, 4, workers=0, rank=r, world=2)) for r in range(2)]
    for batch, first, second in zip(whole, *shares, strict=True):
        assert torch.equal(torch.cat([first.images, second.images]), batch.images)
        assert torch.equal(torch.cat([first.ids, second.ids]), batch.ids)


@pytest.mark.parametrize("content", [b"", b"not an image", jpeg_bytes()[:900]], ids=["empty", "text", "truncated"])
@pytest.mark.parametrize("workers", [0, 1])
def test_damaged_files_are_named_or_skipped_and_counted(pictures, content, workers):
    part = pictures.train
    part.paths[3].write_bytes(content)
    with pytest.raises(FileError, match=part.paths[3].name):
        list(batches(part, 4, workers=workers))
    lenient = replace(part, on_corrupt="skip")
    for _ in range(2):  # counted once, not once an epoch
        found = list(batches(lenient, 4, workers=workers))
        assert torch.cat([b.ids for b in found]).tolist() == [int(i) for r, i in enumerate(part.ids) if r != 3]
        assert lenient.skipped == [part.paths[3]]


def test_a_shuffled_batch_keeps_its_size_when_an_image_is_skipped(pictures):
    part = replace(pictures.train, on_corrupt="skip")
    whole = list(batches(part, 8, workers=0, shuffle=True))
    part.paths[3].write_bytes(b"")
    found = list(batches(part, 8, workers=0, shuffle=True))
    assert [len(b.ids) for b in found] == [len(b.ids) for b in whole]
    lost = int(part.ids[3])
    for before, after in zip(whole, found):
        assert set(after.ids.tolist()) == set(before.ids.tolist()) - {lost}
        for row, sample in enumerate(after.ids.tolist()):
            assert torch.equal(after.images[row], before.images[before.ids.tolist().index(sample)])


def test_a_folder_decoded_into_memory(pictures, tmp_path):
    inside = load_data(f"folder:{tmp_path / 'p'}", image_size=16, val_size=2, in_memory=True, workers=0)
    assert isinstance(inside.train, TensorPart)
    lazy = next(batches(pictures.train, 32, workers=0))
    assert torch.equal(next(batches(inside.train, 32)).images, lazy.images)
    with pytest.raises(InputError, match="always in memory"):
        load_data("digits", in_memory=False)


def test_crops_have_the_right_size_and_content():
    wide = Image.fromarray(np.tile(np.arange(100, dtype=np.uint8)[None, :, None], (50, 1, 3)))
    middle = centre_crop(wide, 32)
    assert middle.shape == (32, 32, 3)
    assert abs(float(middle.mean()) - 49.5) < 1.5  # the middle of the ramp
    rng = np.random.default_rng(0)
    crops = np.stack([random_resized_crop(wide, 24, rng) for _ in range(200)])
    assert crops.shape == (200, 24, 24, 3)
    assert 40 < crops.mean() < 60
    assert crops.mean(axis=(1, 2, 3)).std() > 5
    narrow = Image.new("RGB", (400, 3), (9, 9, 9))
    assert (random_resized_crop(narrow, 8, rng) == 9).all()
    exact = Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8))
    assert (centre_crop(exact, 24) == np.asarray(exact)).all()


def test_decoding_many_batches_keeps_their_order(pictures):
    rows = [torch.tensor([2, 0]), torch.tensor([1]), torch.tensor([3, 4, 5])]
    shapes = [(len(images), kept.tolist()) for images, kept in decode_batches(pictures.train, rows, workers=2)]
    assert shapes == [(2, [0, 1]), (1, [0]), (3, [0, 1, 2])]


def test_an_unreadable_cache_is_made_anew(tiny):
    first = load_data("tiny-imagenet", tiny.parent, workers=0)
    (tiny / ".calgrad" / "train.npy").write_bytes(b"\x93NUMPY broken")
    (tiny / ".calgrad" / "val.json").write_text(json.dumps({"key": "other"}))
    again = load_data("tiny-imagenet", tiny.parent, workers=0)
    assert torch.equal(first.train.images, again.train.images)
    assert torch.equal(first.test.images, again.test.images)
    assert find_spec("tiny-imagenet").image_size == 64
