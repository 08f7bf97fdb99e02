"""Files of predictions, damaged and hostile: npz, safetensors, CSV, Parquet."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calgrad.checks import FileError
from calgrad.predictions import Predictions, open_file, stream

from .conftest import FUZZ, damaged

ROWS = Predictions(
    np.arange(12, dtype=np.float32).reshape(4, 3), [0, 1, 2, 0], ids=["a", "b", "c", "d"], meta={"k": [1, "x"]}
)


def files() -> dict[str, bytes]:
    import tempfile

    import pyarrow as pa
    from pyarrow import parquet

    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("npz", "safetensors"):
            ROWS.save(Path(folder) / f"p.{suffix}")
        arrays = {f"logit_{k}": ROWS.logits[:, k].numpy() for k in range(3)}
        parquet.write_table(pa.table({"label": [0, 1, 2, 0], "id": list("abcd"), **arrays}), Path(folder) / "p.parquet")
        lists = pa.table({"label": [0, 1, 2, 0], "logits": ROWS.logits.tolist()})
        parquet.write_table(lists, Path(folder) / "l.parquet", compression="none")
        compressed = io.BytesIO()
        np.savez_compressed(compressed, logits=ROWS.logits.numpy(), labels=ROWS.labels.numpy())
        (Path(folder) / "c.npz").write_bytes(compressed.getvalue())
        found = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    lines = ["label,id,logit_0,logit_1,logit_2", *(f"{i % 3},{'abcd'[i]},{i},{-i},{i / 7}" for i in range(4))]
    return {**found, "p.csv": "\n".join(lines).encode()}


FILES = files()


def read_all(path: Path) -> Predictions:
    for part in stream(path, rows=3):
        assert 0 < part.n <= 3
    return Predictions.load(path)


@pytest.mark.parametrize("name", FILES)
def test_every_damage_is_numbers_or_an_error_that_names_the_file(name, tmp_path, check):
    assert check(tmp_path / name, FILES[name], read_all).n == 4

    @FUZZ
    @given(damaged(FILES[name]))
    def fuzz(content):
        check(tmp_path / name, content, read_all)

    fuzz()


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".csv", ".parquet"])
def test_arbitrary_bytes(suffix, tmp_path, check):
    path = tmp_path / f"noise{suffix}"

    @FUZZ
    @given(st.binary(max_size=300))
    def fuzz(content):
        check(path, content, read_all)

    fuzz()


CELLS = st.text(alphabet='0123456789.,-+eE"\n\r\t naif\x00é☃', max_size=12)


def test_csv_of_odd_cells(tmp_path, check):
    path = tmp_path / "odd.csv"

    @FUZZ
    @given(st.lists(st.lists(CELLS, max_size=5), max_size=6))
    def fuzz(rows):
        text = "label,logit_0,logit_1\n" + "\n".join(",".join(row) for row in rows)
        check(path, text.encode(), read_all)

    fuzz()


class Hostile:
    """Whoever unpickles it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


def test_an_object_array_is_never_unpickled(tmp_path):
    mark = tmp_path / "executed"
    objects = np.array([Hostile(mark), Hostile(mark)], dtype=object)
    for name, arrays in {
        "labels": {"logits": np.eye(2), "labels": objects},
        "logits": {"logits": objects.reshape(2, 1), "labels": np.arange(2)},
        "ids": {"logits": np.eye(2), "labels": np.arange(2), "ids": objects},
        "meta": {"logits": np.eye(2), "labels": np.arange(2), "meta": objects[0]},
    }.items():
        path = tmp_path / f"{name}.npz"
        np.savez(path, allow_pickle=True, **arrays)
        with pytest.raises(FileError, match=name):
            Predictions.load(path)
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Hostile(mark)))
    with pytest.raises(FileError, match="a pickle"):
        Predictions.load(tmp_path / "p.npz")
    assert not mark.exists()


def bomb(path: Path, shape: tuple[int, ...], *, declared: int | None = None) -> None:
    """A small zip whose `logits` unfold into zeros of this shape."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("logits.npy", "w") as file:
            file.write(header.getvalue())
            left, zeros = int(np.prod(shape)) * 4 if declared is None else declared, bytes(1 << 22)
            while left > 0:
                file.write(zeros[:left])
                left -= len(zeros)
        labels = io.BytesIO()
        np.save(labels, np.zeros(shape[0], dtype=np.int64))
        archive.writestr("labels.npy", labels.getvalue())


def test_a_zip_bomb_is_streamed_in_constant_memory_and_never_loaded(tmp_path, check, monkeypatch):
    path = tmp_path / "bomb.npz"
    bomb(path, (1 << 20, 128))  # 512 MiB of zeros
    assert path.stat().st_size < 3 << 20
    content = path.read_bytes()
    assert check(path, content, lambda p: sum(part.n for part in stream(p, rows=4096))) == 1 << 20
    monkeypatch.setattr("calgrad.predictions.files.memory", lambda: 256 * 2.0**20)
    assert "takes 0.5 GiB once read, and this process may use 0.2" in str(check(path, content, Predictions.load))


def test_a_header_that_claims_more_than_the_file_can_hold_allocates_nothing(tmp_path, check):
    for shape in [(1 << 40, 4), (4, 1 << 40), (1 << 62, 1 << 62)]:
        path = tmp_path / "claims.npz"
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("logits.npy", header.getvalue() + bytes(64))
            archive.writestr("labels.npy", header.getvalue() + bytes(64))
        assert isinstance(check(path, path.read_bytes(), Predictions.load), FileError)


def test_a_csv_whose_first_line_never_ends(tmp_path, check):
    content = b"label," + b"x" * (64 << 20)
    assert "its first line has more than" in str(check(tmp_path / "line.csv", content, open_file))


def test_a_parquet_list_that_unfolds_beyond_memory_is_refused_by_its_header(tmp_path, monkeypatch):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "bomb.parquet"
    parquet.write_table(pa.table({"label": [0], "logits": [np.zeros(4_000_000)]}), path)
    monkeypatch.setattr("calgrad.predictions.tables.memory", lambda: 16 * 2.0**20)
    with pytest.raises(FileError, match=r"bomb\.parquet .* GiB"):
        open_file(path)


@pytest.mark.parametrize(
    "header", [b"{}", b'{"logits":{"dtype":"F32","shape":[99999999,99999999],"data_offsets":[0,4]}}']
)
def test_a_safetensors_header_that_lies(header, tmp_path, check):
    content = len(header).to_bytes(8, "little") + header + bytes(4)
    assert isinstance(check(tmp_path / "lies.safetensors", content, Predictions.load), FileError)
    huge = (1 << 62).to_bytes(8, "little") + header
    assert isinstance(check(tmp_path / "lies.safetensors", huge, Predictions.load), FileError)


def test_meta_is_text_and_stays_text(tmp_path):
    text = "</script><script>alert(1)</script>{{7*7}}$(touch x)"
    Predictions(np.eye(2), [0, 1], meta={"name": text}).save(tmp_path / "m.npz")
    assert json.loads(json.dumps(Predictions.load(tmp_path / "m.npz").meta)) == {"name": text}
