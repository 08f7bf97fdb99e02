"""Small data sets in the official formats, made by the tests."""

from __future__ import annotations

import io
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from calgrad.data.spec import SPECS, DataSpec

WNIDS = ["n01443537", "n01629819", "n01641577", "n01644900"]


def small_spec(name: str, train: int, test: int, classes: int | None = None) -> DataSpec:
    spec = SPECS[name]
    return replace(
        spec, train_size=train, test_size=test, val_size=max(1, train // 10), class_count=classes or spec.class_count
    )


def shrink(monkeypatch, name: str, train: int, test: int, classes: int | None = None) -> DataSpec:
    """Let `load_data(name)` expect a small edition."""
    spec = small_spec(name, train, test, classes)
    monkeypatch.setitem(SPECS, name, spec)
    return spec


def python2_array(pixels: np.ndarray) -> bytes:
    """The opcodes Python 2 wrote for a uint8 array: byte strings throughout, no `_codecs.encode`."""
    raw = pixels.tobytes()
    rows, columns = pixels.shape
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        + b"(K\x01(" + b"J" + rows.to_bytes(4, "little") + b"J" + columns.to_bytes(4, "little") + b"t"
        + b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    )  # fmt: skip


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A whole CIFAR-10 batch file as Python 2 pickled it."""
    listed = b"".join(b"K" + bytes([label]) for label in labels)
    return b"\x80\x02}(U\x04data" + python2_array(pixels) + b"U\x06labels](" + listed + b"eu."


def cifar_pixels(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def write_cifar10(root: Path, per_batch: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Five training batches and a test batch; returns all pixels and labels in order."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    pixels, labels = [], []
    for index, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        batch = cifar_pixels(per_batch, index)
        label = [(index + i) % 10 for i in range(per_batch)]
        content = {
            b"batch_label": name.encode(),
            b"labels": label,
            b"data": batch,
            b"filenames": [b"x.png"] * per_batch,
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
        pixels.append(batch)
        labels.append(label)
    names = [c.encode() for c in SPECS["cifar10"].classes]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names, b"num_vis": 3072}, protocol=2))
    return np.concatenate(pixels), np.concatenate(labels)


def write_cifar100(root: Path, train: int = 200, test: int = 100) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, size in (("train", train), ("test", test)):
        fine = [i % 100 for i in range(size)]
        content = {"data": cifar_pixels(size, 7), "fine_labels": fine, "coarse_labels": [f // 5 for f in fine]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    meta = {"fine_label_names": list(SPECS["cifar100"].classes), "coarse_label_names": ["x"] * 20}
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))


def pack(folder: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    return archive


def jpeg(path: Path, size: tuple[int, int] = (64, 64), colour: int = 0, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    value = colour if mode == "L" else (colour, 255 - colour, 128)
    Image.new(mode, size, value).save(path, format="JPEG", quality=95)


def jpeg_bytes(size: tuple[int, int] = (64, 64)) -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    Image.fromarray(noise).save(out, format="JPEG")
    return out.getvalue()


def write_tiny_imagenet(root: Path, *, train: int = 6, val: int = 2) -> Path:
    """Four classes with `train` and `val` images each; one image is grey, as in the real set."""
    folder = root / "tiny-imagenet-200"
    for number, wnid in enumerate(WNIDS):
        for i in range(train):
            path = folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG"
            jpeg(path, colour=60 * number, mode="L" if (number, i) == (0, 0) else "RGB")
    lines = []
    for i in range(val * len(WNIDS)):
        number = (3 * i + 1) % len(WNIDS)
        jpeg(folder / "val" / "images" / f"val_{i}.JPEG", colour=60 * number)
        lines.append(f"val_{i}.JPEG\t{WNIDS[number]}\t0\t0\t63\t63")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (folder / "wnids.txt").write_text("\n".join(reversed(WNIDS)) + "\n")  # the real file is not sorted either
    words = [f"{wnid}\tname {i}, other name" for i, wnid in enumerate(WNIDS)]
    (folder / "words.txt").write_text("\n".join([*words, "n99999999\tsomething else"]) + "\n")
    return folder


def write_class_folders(folder: Path, classes: list[str], per_class: int, size: tuple[int, int] = (40, 30)) -> None:
    for number, name in enumerate(classes):
        for i in range(per_class):
            jpeg(folder / name / f"{name}_{i}.JPEG", size=size, colour=50 * number + i)
