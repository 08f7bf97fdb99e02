"""Files from elsewhere: other frameworks' arrays, tables, and every kind of damage and malice."""

from __future__ import annotations

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrad.checks import CalgradError, FileError, InputError
from calgrad.predictions import Predictions, open_file, stream, tables

GENERATOR = np.random.default_rng(0)
LOGITS = GENERATOR.normal(size=(50, 4)).astype(np.float32)
LABELS = GENERATOR.integers(0, 4, 50)
PROBS = torch.tensor(LOGITS).softmax(1).numpy()


class Bomb:
    """Unpickling this runs code."""

    def __reduce__(self):
        return (os.system, ("touch /tmp/calgrad-was-fooled",))


def npy_header(shape, descr="<f4", fortran=False) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": fortran, "shape": shape})
    return out.getvalue()


def write_zip(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def npy(array) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


# ------------------------------------------------------------------------------------------------- what others write


@pytest.mark.parametrize("savez", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8"])
def test_any_numpy_archive_of_logits_and_labels(tmp_path, savez, order, dtype):
    logits = np.asarray(LOGITS.astype(dtype), order=order)
    savez(tmp_path / "p.npz", logits=logits, labels=LABELS.astype(np.int32), extra=np.arange(3))
    whole = Predictions.load(tmp_path / "p.npz")
    pieces = list(stream(tmp_path / "p.npz", rows=7))
    assert len(pieces) == 8
    np.testing.assert_array_equal(whole.logits.numpy(), logits.astype(whole.logits.numpy().dtype))
    assert torch.equal(torch.cat([piece.logits for piece in pieces]), whole.logits)
    assert torch.equal(torch.cat([piece.labels for piece in pieces]), torch.tensor(LABELS))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_probabilities_where_no_logits_exist(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    if suffix == ".npz":
        np.savez(path, probs=PROBS, labels=LABELS)
    else:
        from safetensors.numpy import save_file

        save_file({"probs": PROBS, "labels": LABELS}, path)
    found = Predictions.load(path)
    assert open_file(path).space == found.meta["space"] == "probs"
    np.testing.assert_allclose(found.probs.numpy(), PROBS, rtol=1e-6)


def test_bfloat16_safetensors(tmp_path):
    from safetensors.torch import save_file

    save_file({"logits": torch.tensor(LOGITS).bfloat16(), "labels": torch.tensor(LABELS)}, tmp_path / "p.safetensors")
    assert torch.equal(Predictions.load(tmp_path / "p.safetensors").logits, torch.tensor(LOGITS).bfloat16().float())


def write_csv(path, header, rows, *, bom=False):
    text = ",".join(header) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8-sig" if bom else "utf-8")
    return path


@pytest.fixture(params=["pyarrow", "csv module"])
def csv_reader(request, monkeypatch):
    if request.param == "csv module":
        monkeypatch.setattr(tables.importlib.util, "find_spec", lambda name: None)
    else:
        pytest.importorskip("pyarrow")
    return request.param


@pytest.mark.parametrize("bom", [False, True])
def test_csv_with_numbered_columns_in_any_order(tmp_path, csv_reader, bom):
    order = [2, 0, 3, 1]
    rows = [[f"img{i}", *LOGITS[i, order].tolist(), LABELS[i]] for i in range(50)]
    path = write_csv(tmp_path / "p.csv", ["id", *(f"logit_{k}" for k in order), "label"], rows, bom=bom)
    found = Predictions.load(path)
    np.testing.assert_array_equal(found.logits.numpy(), LOGITS.astype(np.float64))
    assert found.labels.tolist() == LABELS.tolist()
    assert found.ids.tolist() == [f"img{i}" for i in range(50)]
    pieces = list(stream(path, rows=7))
    assert [piece.n for piece in pieces] == [7] * 7 + [1]
    assert torch.equal(torch.cat([piece.logits for piece in pieces]), found.logits)
    assert np.concatenate([piece.ids for piece in pieces]).tolist() == found.ids.tolist()


@pytest.mark.parametrize("named_labels", [False, True])
def test_csv_with_class_names(tmp_path, csv_reader, named_labels):
    names = ["cat", "dog", "eel", "fox"]
    rows = [[names[y] if named_labels else y, *p] for y, p in zip(LABELS, PROBS.tolist())]
    path = write_csv(tmp_path / "p.csv", ["label", *(f"prob_{name}" for name in names)], rows)
    found = Predictions.load(path)
    assert found.class_names == tuple(names)
    assert found.labels.tolist() == LABELS.tolist()
    np.testing.assert_allclose(found.probs.numpy(), PROBS, rtol=1e-6)


def test_ids_of_a_csv_stay_text(tmp_path, csv_reader):
    path = write_csv(tmp_path / "p.csv", ["id", "label", "logit_0", "logit_1"], [["007", 0, 1, 2], ["8", 1, 2, 3]])
    assert Predictions.load(path).ids.tolist() == ["007", "8"]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (["label", "logit_0", "logit_2"], "must run from logit_0 to logit_1"),
        (["label", "logit_1", "logit_2"], "must run from logit_0"),
        (["label", "logit_0", "logit_cat"], "must run from logit_0"),
        (["labels", "logit_0", "logit_1"], "no column `label`"),
        (["label", "a", "b"], "no logit_ or prob_ columns"),
        (["label", "logit_0", "prob_1"], "both logit_ and prob_"),
        (["label", "logit_0", "logit_0"], "twice: logit_0"),
        (["label", "logit_0", "logit_1", "path"], "unknown columns 'path'"),
        (["label;logit_0;logit_1"], "not separated by commas"),
    ],
)
def test_wrong_columns_are_refused_and_the_right_ones_named(tmp_path, header, message):
    path = write_csv(tmp_path / "p.csv", header, [[0] * len(header)])
    with pytest.raises(FileError, match=message) as caught:
        Predictions.load(path)
    assert "expected columns: label, optionally id" in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (["1", "0.5"], FileError),
        (["1", "0.5", "0.1", "7"], FileError),
        (["1", "abc", "0.1"], FileError),
        (["1", "", "0.1"], FileError),
        (["1", "nan", "0.1"], InputError),
        (["1", "inf", "0.1"], InputError),
        (["2", "0.5", "0.1"], InputError),
        (["1.0", "0.5", "0.1"], InputError),
        (["", "0.5", "0.1"], InputError),
        (["dog", "0.5", "0.1"], InputError),
    ],
)
def test_a_bad_cell_is_an_error_that_names_the_file(tmp_path, csv_reader, row, kind):
    path = write_csv(tmp_path / "p.csv", ["label", "logit_0", "logit_1"], [[0, 1.0, 2.0]] * 3 + [row])
    with pytest.raises(kind) as caught:
        Predictions.load(path)
    assert str(path) in str(caught.value)


def test_rows_of_a_stream_are_counted_from_the_start_of_the_file(tmp_path):
    labels = LABELS.copy()
    labels[33] = 9
    np.savez(tmp_path / "p.npz", logits=LOGITS, labels=labels)
    with pytest.raises(InputError, match=r"p\.npz, rows counted from 30: .*got 9 in row 3 "):
        list(stream(tmp_path / "p.npz", rows=10))


def parquet_table(path, columns, **options):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table(columns), path, **options)
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parquet_with_a_column_a_class(tmp_path, dtype):
    columns = {"label": LABELS, "id": np.arange(50) * 3} | {f"logit_{k}": LOGITS[:, k].astype(dtype) for k in range(4)}
    path = parquet_table(tmp_path / "p.parquet", columns, row_group_size=11)
    assert (open_file(path).rows, open_file(path).classes) == (50, 4)
    found, pieces = Predictions.load(path), list(stream(path, rows=8))
    np.testing.assert_array_equal(found.logits.numpy(), LOGITS.astype(dtype))
    assert found.ids.tolist() == (np.arange(50) * 3).tolist()
    assert [piece.n for piece in pieces] == [8] * 6 + [2]
    assert torch.equal(torch.cat([piece.logits for piece in pieces]), found.logits)
    assert torch.equal(torch.cat([piece.labels for piece in pieces]), found.labels)


def test_parquet_with_a_list_column_and_named_labels(tmp_path):
    pa = pytest.importorskip("pyarrow")
    path = parquet_table(tmp_path / "p.parquet", {"label": LABELS, "logits": LOGITS.tolist()})
    assert open_file(path).classes == 4
    np.testing.assert_allclose(Predictions.load(path).logits.numpy(), LOGITS, rtol=1e-7)
    named = pa.array(np.array(["a", "b", "c", "d"])[LABELS]).dictionary_encode()
    columns = {"label": named} | {f"prob_{name}": PROBS[:, k] for k, name in enumerate("abcd")}
    found = Predictions.load(parquet_table(tmp_path / "q.parquet", columns))
    assert found.labels.tolist() == LABELS.tolist()
    assert found.class_names == ("a", "b", "c", "d")


def test_parquet_with_holes_or_uneven_lists_is_refused(tmp_path):
    columns = {"label": [0, 1], "logit_0": [1.0, None], "logit_1": [0.0, 1.0]}
    with pytest.raises(InputError, match=r"p\.parquet: column `logit_0` has 1 empty"):
        Predictions.load(parquet_table(tmp_path / "p.parquet", columns))
    with pytest.raises(InputError, match="must all have 2 numbers"):
        Predictions.load(parquet_table(tmp_path / "q.parquet", {"label": [0, 1], "logits": [[1.0, 2.0], [1.0]]}))
    with pytest.raises(FileError, match="unknown columns 'path'"):
        Predictions.load(parquet_table(tmp_path / "r.parquet", {"label": [0], "logits": [[1.0, 2.0]], "path": ["x"]}))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = parquet_table(tmp_path / "p.parquet", {"label": [0], "logit_0": [1.0], "logit_1": [0.0]})
    monkeypatch.setattr(tables.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileError, match=r"pip install calgrad\[parquet\]"):
        Predictions.load(path)


# --------------------------------------------------------------------------------------------------- damage and malice


@pytest.mark.parametrize("member", ["logits", "labels", "ids", "meta"])
def test_a_pickle_inside_an_archive_is_refused_unread(tmp_path, member):
    arrays = {"logits": LOGITS, "labels": LABELS, member: np.array([Bomb()] * 50, dtype=object)}
    np.savez(tmp_path / "p.npz", **arrays)
    with pytest.raises(FileError, match="pickle"):
        Predictions.load(tmp_path / "p.npz")
    assert not os.path.exists("/tmp/calgrad-was-fooled")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".csv", ".parquet"])
@pytest.mark.parametrize("kind", ["pickle", "torch", "npy", "png", "text", "empty", "noise"])
def test_foreign_files_are_named_for_what_they_are(tmp_path, suffix, kind):
    path = tmp_path / f"p{suffix}"
    if kind == "torch":
        torch.save({"logits": torch.tensor(LOGITS)}, path)
    else:
        path.write_bytes(
            {
                "pickle": pickle.dumps(Bomb()),
                "npy": npy(LOGITS),
                "png": b"\x89PNG\r\n\x1a\n" + bytes(100),
                "text": b"hello world\nthis is no table\n",
                "empty": b"",
                "noise": bytes(range(1, 256)) * 4,
            }[kind]
        )
    with pytest.raises(FileError) as caught:
        Predictions.load(path)
    assert str(path) in str(caught.value)
    says = {"pickle": "pickle", "npy": "NumPy .npy", "png": "PNG", "empty": "0 bytes", "torch": "PyTorch"}.get(kind, "")
    if suffix != ".csv":
        assert says in str(caught.value)
    assert not os.path.exists("/tmp/calgrad-was-fooled")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".parquet", "-compressed.npz"])
@pytest.mark.parametrize("keep", [10, 100, 0.5, -1])
def test_truncated_files(tmp_path, suffix, keep):
    path = tmp_path / f"p{suffix}"
    if suffix == ".parquet":
        parquet_table(path, {"label": LABELS} | {f"logit_{k}": LOGITS[:, k] for k in range(4)})
    elif suffix == "-compressed.npz":
        np.savez_compressed(path, logits=LOGITS, labels=LABELS)
    else:
        Predictions(LOGITS, LABELS).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(FileError, match="Truncated, damaged"):
        Predictions.load(path)


@settings(deadline=None, max_examples=50)
@given(position=st.floats(0, 1, exclude_max=True), byte=st.integers(1, 255))
def test_a_flipped_byte_gives_the_same_numbers_or_an_error_never_other_numbers(tmp_path_factory, position, byte):
    path = Predictions(LOGITS, LABELS, ids=np.arange(50), split="test").save(tmp_path_factory.mktemp("flip") / "p.npz")
    data = bytearray(path.read_bytes())
    data[int(position * len(data))] ^= byte
    path.write_bytes(data)
    try:
        found = Predictions.load(path)
    except CalgradError:
        return
    np.testing.assert_array_equal(found.logits.numpy(), LOGITS)
    assert found.labels.tolist() == LABELS.tolist()


def test_an_archive_that_claims_terabytes_is_not_believed(tmp_path):
    members = {"logits.npy": npy_header((10**9, 1000)) + bytes(64), "labels.npy": npy(LABELS)}
    path = write_zip(tmp_path / "p.npz", members)
    with pytest.raises(FileError, match=r"declares shape \(1000000000, 1000\).*4,000,000,000,000 bytes"):
        Predictions.load(path)


def test_a_shape_that_overflows_is_not_believed(tmp_path):
    path = write_zip(
        tmp_path / "p.npz", {"logits.npy": npy_header((2**62, 4)), "labels.npy": npy_header((2**62,), "<i8")}
    )
    with pytest.raises(FileError, match="declares shape"):
        Predictions.load(path)


def test_a_zip_that_lies_about_its_sizes_is_not_believed(tmp_path):
    path = write_zip(
        tmp_path / "p.npz", {"logits.npy": npy_header((10**8, 1000)) + bytes(64), "labels.npy": npy(LABELS)}
    )
    with zipfile.ZipFile(path) as archive:
        small = archive.getinfo("logits.npy").file_size
    big = 10**8 * 1000 * 4 + small - 64
    data = path.read_bytes()
    little = small.to_bytes(4, "little")
    path.write_bytes(data.replace(little, (big % 2**32).to_bytes(4, "little")))
    with pytest.raises(FileError, match=r"p\.npz"):
        Predictions.load(path)


def test_a_compressed_member_beyond_what_deflate_can_do_is_refused(tmp_path, monkeypatch):
    path = write_zip(tmp_path / "p.npz", {"logits.npy": npy(LOGITS), "labels.npy": npy(LABELS)}, zipfile.ZIP_DEFLATED)
    from calgrad.predictions import npz

    assert Predictions.load(path).n == 50
    monkeypatch.setattr(npz, "_DEFLATE_LIMIT", 1)
    with pytest.raises(FileError, match="declares shape"):
        Predictions.load(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"val_logits": LOGITS, "val_labels": LABELS}, "holds val_logits, val_labels; expected `logits`"),
        ({"logits": LOGITS, "probs": PROBS, "labels": LABELS}, "both logits and probs"),
        ({"logits": LOGITS}, "expected `logits`"),
        ({"logits": LOGITS, "labels": LABELS[:49]}, r"`labels` must have shape \(50,\)"),
        ({"logits": LOGITS, "labels": np.eye(4)[LABELS]}, "one-hot"),
        ({"logits": LOGITS, "labels": LABELS, "ids": np.arange(3)}, r"`ids` must have shape \(50,\)"),
        ({"logits": LOGITS[0], "labels": LABELS}, r"shape \(N, K\)"),
        ({"logits": LOGITS.astype(complex), "labels": LABELS}, "must hold numbers"),
        ({"logits": LOGITS.astype(str), "labels": LABELS}, "must hold numbers"),
        ({"logits": LOGITS[:0], "labels": LABELS[:0]}, "no rows"),
        ({"logits": LOGITS, "labels": LABELS.astype(float)}, "integer class indices"),
        ({"logits": LOGITS, "labels": LABELS, "meta": np.array("[1]")}, "JSON object"),
        ({"logits": LOGITS, "labels": LABELS, "meta": np.array("{")}, "JSONDecodeError"),
        ({"logits": LOGITS, "labels": LABELS, "split": np.arange(3)}, "one string"),
        ({"probs": LOGITS, "labels": LABELS}, "if these are logits"),
    ],
)
def test_archives_with_the_wrong_arrays(tmp_path, arrays, message):
    np.savez(tmp_path / "p.npz", **arrays)
    with pytest.raises(CalgradError, match=message) as caught:
        Predictions.load(tmp_path / "p.npz")
    assert "p.npz" in str(caught.value)


def test_safetensors_with_broken_ids(tmp_path):
    from safetensors.numpy import save_file

    base = {"logits": LOGITS[:2], "labels": LABELS[:2]}
    save_file({**base, "ids_ends": np.array([5, 900]), "ids_utf8": np.zeros(6, np.uint8)}, tmp_path / "a.safetensors")
    save_file({**base, "ids_ends": np.array([5, 6])}, tmp_path / "b.safetensors")
    for name, message in (("a", "must rise from 0 to at most 6"), ("b", "without `ids_utf8`")):
        with pytest.raises(FileError, match=message):
            Predictions.load(tmp_path / f"{name}.safetensors")


def test_paths_that_cannot_be_predictions(tmp_path):
    (tmp_path / "folder.npz").mkdir()
    for name, message in (
        ("absent.npz", "does not exist"),
        ("p.pt", "read from .npz, .safetensors, .csv, .parquet"),
        ("p", "no suffix"),
        ("folder.npz", "is a folder"),
    ):
        with pytest.raises(FileError, match=message):
            Predictions.load(tmp_path / name)
    with pytest.raises(FileError, match=r"written as \.npz or \.safetensors"):
        Predictions(LOGITS, LABELS).save(tmp_path / "p.csv")


def test_a_stream_holds_a_piece_of_the_file_and_not_the_file(tmp_path):
    import tracemalloc

    rows = 200_000
    np.savez(tmp_path / "p.npz", logits=np.zeros((rows, 8), np.float32), labels=np.zeros(rows, np.int64))
    tracemalloc.start()
    total = sum(part.n for part in stream(tmp_path / "p.npz", rows=2000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == rows
    assert peak < 1_000_000 < rows * 8 * 4


def test_saving_below_a_file_is_one_clear_error(tmp_path):
    (tmp_path / "taken").write_text("not a folder")
    predictions = Predictions([[1.0, 0.0]], [0])
    with pytest.raises(FileError, match=r"taken.out\.npz cannot be written"):
        predictions.save(tmp_path / "taken" / "out.npz")
