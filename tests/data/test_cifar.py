from __future__ import annotations

import io
import os
import pickle
import tarfile

import numpy as np
import pytest
import torch

from calgrad.checks import FileError
from calgrad.data import load_data
from calgrad.data.safe_pickle import restricted_loads
from tests.data.official import (
    cifar_pixels,
    pack,
    python2_batch,
    shrink,
    write_cifar10,
    write_cifar100,
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shrink(monkeypatch, "cifar10", 50, 10)
    pixels, labels = write_cifar10(tmp_path)
    return tmp_path, pixels, labels


def test_cifar10_from_its_folder_and_from_its_archive(folder):
    root, pixels, labels = folder
    data = load_data("cifar10", root, val_size=10, seed=1)
    images = torch.from_numpy(pixels.reshape(-1, 3, 32, 32))
    for part in (data.train, data.val):
        assert torch.equal(part.images, images[part.ids])
        assert part.labels.tolist() == labels[part.ids].tolist()
    assert torch.equal(data.test.images, images[50:])
    assert data.test.labels.tolist() == labels[50:].tolist()
    assert len(set(data.train.ids.tolist()) & set(data.val.ids.tolist())) == 0
    archive = pack(root / "cifar-10-batches-py", root / "cifar-10-python.tar.gz")
    for place in (archive, root / "cifar-10-batches-py"):
        again = load_data("cifar10", place, val_size=10, seed=1)
        assert torch.equal(again.train.images, data.train.images)
        assert torch.equal(again.test.images, data.test.images)


def test_cifar100_uses_the_fine_labels(tmp_path, monkeypatch):
    shrink(monkeypatch, "cifar100", 200, 100)
    write_cifar100(tmp_path)
    data = load_data("cifar100", tmp_path, val_size=100)
    assert data.test.labels.tolist() == list(range(100))
    assert data.val.labels.bincount().tolist() == [1] * 100
    assert data.spec.classes[1] == "aquarium_fish"


def test_files_pickled_by_python_2_are_read(folder):
    root, *_ = folder
    pixels = cifar_pixels(10, 99)
    content = python2_batch(pixels, list(range(10)))
    assert pickle.loads(content, encoding="bytes")[b"labels"] == list(range(10))  # a real pickle, as the archive's are
    (root / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    data = load_data("cifar10", root, val_size=10)
    assert torch.equal(data.test.images.reshape(10, -1), torch.from_numpy(pixels))


def test_paper_split_on_the_full_size_is_used_by_load_data(folder):
    root, *_ = folder
    data = load_data("cifar10", root, split="paper", val_size=5)
    order = np.arange(50)
    np.random.RandomState(1).shuffle(order)
    assert data.val.ids.tolist() == order[:5].tolist()


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def hostile_pickles(mark):
    yield "os.system", pickle.dumps({b"data": Evil(mark), b"labels": []})
    yield "os.system, old protocol", pickle.dumps({b"data": Evil(mark)}, protocol=0)
    yield (
        "eval",
        b"\x80\x02cbuiltins\neval\nX"
        + len(code := f"open({str(mark)!r}, 'w')").to_bytes(4, "little")
        + code.encode()
        + b"\x85R.",
    )
    yield "a class of calgrad", b"\x80\x02ccalgrad.data.fetch\nfetch\nX\x07\x00\x00\x00cifar10\x85R."
    yield "numpy.load", b"\x80\x02cnumpy\nload\nX\x03\x00\x00\x00x.y\x85R."
    yield "numpy scalar", pickle.dumps({b"data": np.float64(1.0)}, protocol=2)
    yield "dotted name", b"\x80\x04\x8c\x05numpy\x8c\x12ndarray.__reduce__\x93)R."
    yield "object array", pickle.dumps({b"data": np.array([{}], dtype=object)}, protocol=2)
    yield "other codec", b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R."
    yield "persistent id", b"\x80\x02X\x01\x00\x00\x00aQ."
    yield "not a dictionary", pickle.dumps([1, 2, 3])
    yield "truncated", pickle.dumps({b"data": np.zeros((5, 3072), np.uint8)}, protocol=2)[:-200]
    yield (
        "wrong length",
        python2_batch(cifar_pixels(2, 0), [0, 1]).replace(b"J\x02\x00\x00\x00", b"J\x03\x00\x00\x00", 1),
    )
    yield "empty", b""
    yield "not a pickle", b"<!DOCTYPE html><html>404</html>"


@pytest.mark.parametrize("name", [name for name, _ in hostile_pickles("x")])
def test_hostile_and_damaged_pickles_are_refused(folder, name):
    root, *_ = folder
    mark = root / "was-here"
    content = dict(hostile_pickles(mark))[name]
    with pytest.raises(pickle.UnpicklingError):
        restricted_loads(content)
    (root / "cifar-10-batches-py" / "data_batch_3").write_bytes(content)
    with pytest.raises(FileError, match="data_batch_3"):
        load_data("cifar10", root)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"labels": [0] * 9}, "must list 10 labels, got 9"),
        ({b"labels": [0] * 9 + [10]}, "label 10 of image 9"),
        ({b"labels": [0] * 9 + [-1]}, "label -1"),
        ({b"labels": [0.0] * 10}, r"label 0\.0"),
        ({b"labels": None}, "got None"),
        ({b"data": np.zeros((10, 3071), np.uint8)}, r"\(N, 3072\)"),
        ({b"data": b"bytes"}, r"\(N, 3072\)"),
        ({b"data": np.zeros((9, 3072), np.uint8), b"labels": [0] * 9}, "holds 49 images"),
    ],
)
def test_wrong_contents_are_named(folder, change, message):
    root, *_ = folder
    content = {b"data": np.zeros((10, 3072), np.uint8), b"labels": [0] * 10} | change
    (root / "cifar-10-batches-py" / "data_batch_2").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(FileError, match=message):
        load_data("cifar10", root)


def test_incomplete_and_broken_archives(folder, tmp_path_factory):
    root, *_ = folder
    archive = pack(root / "cifar-10-batches-py", root / "cifar-10-python.tar.gz")
    content = archive.read_bytes()
    place = tmp_path_factory.mktemp("broken")
    broken = place / "cifar-10-python.tar.gz"
    for damaged in (content[: len(content) // 2], content[:100], b"not gzip", b""):
        broken.write_bytes(damaged)
        with pytest.raises(FileError, match=r"cifar-10-python\.tar\.gz"):
            load_data("cifar10", place)
    (root / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(FileError, match="data_batch_4 missing"):
        load_data("cifar10", root)


def test_members_with_other_paths_are_not_read(folder, tmp_path_factory):
    """A tar whose files hide behind `..`, absolute paths or links holds none of the expected members."""
    root, *_ = folder
    place = tmp_path_factory.mktemp("hostile")
    with tarfile.open(place / "cifar-10-python.tar.gz", "w:gz") as tar:
        content = (root / "cifar-10-batches-py" / "data_batch_1").read_bytes()
        for name in ("../cifar-10-batches-py/data_batch_1", "/cifar-10-batches-py/data_batch_2"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("cifar-10-batches-py/data_batch_3")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(FileError, match="data_batch_1, data_batch_2, data_batch_3"):
        load_data("cifar10", place)


def test_missing_data_say_where_and_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setenv("CALGRAD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileError) as error:
        load_data("cifar10")
    for part in (
        str(tmp_path / "nowhere" / "cifar-10-batches-py"),
        "cifar-10-python.tar.gz",
        "calgrad data fetch cifar10",
    ):
        assert part in str(error.value)


@pytest.fixture(scope="module")
def real_cifar10():
    place = os.environ.get("CALGRAD_DATA")
    if not place or not os.path.isdir(os.path.join(place, "cifar-10-batches-py")):
        pytest.skip("CIFAR-10 is not here: set CALGRAD_DATA to a folder that holds cifar-10-batches-py")
    return load_data("cifar10", place, split="paper")


@pytest.mark.slow
def test_the_real_cifar10(real_cifar10):
    data = real_cifar10
    assert [len(part) for part in (data.train, data.val, data.test)] == [45_000, 5_000, 10_000]
    assert data.val.ids[:5].tolist() == [26247, 35067, 34590, 16668, 12196]
    assert data.test.labels.bincount().tolist() == [1000] * 10
    assert data.test.labels[:5].tolist() == [3, 8, 8, 0, 6]  # cat, ship, ship, airplane, frog
    mean = data.train.images[:2000].float().mean(dim=(0, 2, 3)) / 255
    assert torch.allclose(mean, torch.tensor(data.spec.mean), atol=0.01)
