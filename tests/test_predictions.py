"""The object: what it accepts, what it refuses, and what it derives."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from calgrad.checks import FileError, InputError
from calgrad.predictions import Predictions, open_file, stream

LOGITS = np.array([[2.0, -1.0, 0.0], [0.5, 1.5, -3.0]], dtype=np.float32)


def test_holds_tensors_on_the_cpu_with_their_dtypes():
    made = Predictions(LOGITS, [0, 2], ids=["a", "b"], split="test", meta={"epoch": 3})
    assert made.logits.dtype == torch.float32
    assert made.labels.dtype == torch.int64
    assert (made.n, len(made), made.classes) == (2, 2, 3)
    assert made.prediction.tolist() == [0, 1]
    torch.testing.assert_close(made.probs, torch.tensor(LOGITS).softmax(1))
    torch.testing.assert_close(made.log_probs.exp(), made.probs)
    assert repr(made) == "Predictions(n=2, classes=3, torch.float32, split='test', with ids)"


def test_half_precision_is_widened_and_float64_kept():
    assert Predictions(torch.tensor(LOGITS).bfloat16(), [0, 1]).logits.dtype == torch.float32
    assert Predictions(LOGITS.astype(np.float64), [0, 1]).logits.dtype == torch.float64


def test_is_frozen_and_copies_its_meta():
    meta = {"class_names": ["a", "b", "c"]}
    made = Predictions(LOGITS, [0, 2], ids=[5, 7], meta=meta)
    meta["class_names"].append("d")
    assert made.class_names == ("a", "b", "c")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.split = "val"
    with pytest.raises(ValueError, match="read-only"):
        made.ids[0] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": LOGITS[:, 0]}, r"`logits` must have shape \(N, K\)"),
        ({"logits": np.where(LOGITS == 2, np.nan, LOGITS)}, "1 NaN or infinite values in 1 of 2 rows.*row 0, class 0"),
        ({"logits": LOGITS.astype(int)}, "floating point"),
        ({"logits": LOGITS[:0], "labels": []}, "empty"),
        ({"logits": LOGITS[:, :1]}, "at least two classes"),
        ({"labels": [0, 3]}, r"\[0, 3\) for 3 classes, got 3 in row 1"),
        ({"labels": [0.0, 1.0]}, "integer class indices"),
        ({"labels": np.eye(3)[:2].astype(int)}, "one-hot"),
        ({"labels": [0, 1, 2]}, r"shape \(2,\)"),
        ({"ids": [1, 2, 3]}, r"`ids` must have shape \(2,\)"),
        ({"ids": [0.5, 1.5]}, "whole numbers or strings"),
        ({"ids": ["ok", "\ud800"]}, "valid Unicode"),
        ({"ids": np.array([1, 2**64 - 1], dtype=np.uint64)}, "fit into int64"),
        ({"split": "a\x00"}, "printable"),
        ({"split": None}, "printable"),
        ({"meta": {"x": float("nan")}}, "JSON"),
        ({"meta": {"x": np.zeros(3)}}, "JSON"),
        ({"meta": {1: "x"}}, "a key is not a string"),
        ({"meta": [1]}, "JSON"),
        ({"meta": {"class_names": ["a", "b"]}}, "3 strings"),
        ({"meta": {"space": "odds"}}, "'probs' or 'logits'"),
    ],
)
def test_bad_input_is_refused_with_the_reason(change, message):
    with pytest.raises(InputError, match=message):
        Predictions(**{"logits": LOGITS, "labels": [0, 1], **change})


def test_from_probs_gives_the_probabilities_back_and_says_what_they_were():
    probs = torch.tensor([[0.7, 0.3, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    made = Predictions.from_probs(probs, [0, 2], meta={"source": "forest"})
    torch.testing.assert_close(made.probs, probs, atol=1e-15, rtol=1e-12)
    assert made.meta == {"source": "forest", "space": "probs"}
    assert torch.isfinite(made.logits).all()
    with pytest.raises(InputError, match="logits"):
        Predictions.from_probs(LOGITS, [0, 1])
    with pytest.raises(InputError, match="sum to 1"):
        Predictions.from_probs([[0.5, 0.6], [0.5, 0.5]], [0, 1])


@pytest.mark.parametrize("rows", [slice(1, None, 2), [1, 3], [-3, -1], np.array([False, True, False, True])])
def test_select_keeps_rows_together(rows):
    made = Predictions(torch.arange(8.0).reshape(4, 2), [0, 1, 0, 1], ids=list("abcd"), split="val", meta={"k": 1})
    picked = made.select(rows)
    assert picked.ids.tolist() == ["b", "d"]
    assert picked.logits.tolist() == [[2, 3], [6, 7]]
    assert picked.labels.tolist() == [1, 1]
    assert (picked.split, picked.meta) == ("val", {"k": 1})


@pytest.mark.parametrize("rows", [[0, 9], [0.5], [True, False], [[0]]])
def test_select_refuses_rows_that_are_not_there(rows):
    with pytest.raises(InputError, match="`rows` must"):
        Predictions(torch.zeros(4, 2), [0, 1, 0, 1]).select(rows)


def test_with_logits_keeps_the_samples_and_adds_provenance():
    made = Predictions.from_probs([[0.5, 0.5], [0.9, 0.1]], [0, 1], ids=[3, 4], split="test", meta={"net": "r50"})
    other = made.with_logits(made.logits / 2, calibrator="temperature")
    assert other.meta == {"net": "r50", "calibrator": "temperature"}
    assert other.ids.tolist() == [3, 4]
    torch.testing.assert_close(other.logits * 2, made.logits)


floats = st.floats(-1e4, 1e4, width=32)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
printable = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=8)


@st.composite
def predictions(draw):
    rows, classes = draw(st.integers(1, 20)), draw(st.integers(2, 5))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64, ">f4"]))
    logits = draw(hnp.arrays(np.float32, (rows, classes), elements=floats)).astype(dtype)
    labels = draw(hnp.arrays(draw(st.sampled_from([np.uint8, np.int32, np.int64])), rows, elements=st.integers(0, 1)))
    ids = draw(
        st.none()
        | hnp.arrays(np.int64, rows)
        | st.lists(st.text(st.characters(exclude_categories=["C"]), max_size=6), min_size=rows, max_size=rows)
    )
    meta = draw(st.dictionaries(printable.filter(lambda k: k not in ("space", "class_names")), json_values, max_size=3))
    return Predictions(logits, labels, ids, draw(printable), meta)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@settings(deadline=None, max_examples=40)
@given(made=predictions(), rows=st.integers(1, 25))
def test_what_is_saved_comes_back_bit_for_bit_whole_or_in_pieces(tmp_path_factory, suffix, made, rows):
    path = made.save(tmp_path_factory.mktemp("round") / f"p{suffix}")
    whole, pieces = Predictions.load(path), list(stream(path, rows))
    for found in (whole, *pieces):
        assert (found.split, found.meta, found.classes) == (made.split, made.meta, made.classes)
        assert found.logits.dtype == made.logits.dtype
    assert [piece.n for piece in pieces[:-1]] == [rows] * (len(pieces) - 1)
    for found in ([whole], pieces):
        assert torch.equal(torch.cat([part.logits for part in found]), made.logits)
        assert torch.equal(torch.cat([part.labels for part in found]), made.labels)
        if made.ids is None:
            assert all(part.ids is None for part in found)
        else:
            assert np.concatenate([part.ids for part in found]).tolist() == made.ids.tolist()


def test_saving_makes_the_folder_and_leaves_nothing_else(tmp_path):
    made = Predictions(LOGITS, [0, 1])
    path = made.save(tmp_path / "new" / "p.npz")
    made.save(path)
    assert [file.name for file in path.parent.iterdir()] == ["p.npz"]


def test_a_save_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    from calgrad.predictions import npz

    path = Predictions(LOGITS, [0, 1], split="old").save(tmp_path / "p.npz")

    def breaks(predictions, file):
        file.write_bytes(b"half a f")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(npz, "write", breaks)
    with pytest.raises(FileError, match="No space left"):
        Predictions(LOGITS, [0, 1], split="new").save(path)
    assert Predictions.load(path).split == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["p.npz"]


def test_opening_reads_the_header_only(tmp_path):
    path = Predictions(LOGITS, [0, 1], split="val", meta={"a": 1}).save(tmp_path / "p.safetensors")
    header = open_file(path)
    assert (header.rows, header.classes, header.space, header.split, header.meta) == (2, 3, "logits", "val", {"a": 1})
    assert 2 * 3 * 4 + 2 * 8 <= header.nbytes < 2000


def test_rows_of_a_stream_must_be_positive(tmp_path):
    path = Predictions(LOGITS, [0, 1]).save(tmp_path / "p.npz")
    with pytest.raises(InputError, match="`rows`"):
        next(stream(path, rows=0))
